"""Taking results out of a run: the policy as a Hugging Face directory with a model card, the labels as rows."""

from __future__ import annotations

from pathlib import Path

from holdfast.checkpoint.snapshot import Snapshot
from holdfast.checkpoint.transaction import state_of
from holdfast.data.formats import write_preferences
from holdfast.errors import HoldfastError
from holdfast.models.load import write_model_directory
from holdfast.models.lora import lora_of, save_adapters
from holdfast.preferences.store import PreferenceStore
from holdfast.report.data import RunData, read_run
from holdfast.report.undone import kept_curve
from holdfast.run.directory import RunDirectory
from holdfast.run.origin import checkpoint_policy

CARD = """\
---
library_name: transformers
pipeline_tag: text-generation
tags: [holdfast, rlhf, {tag}]
---

# {name}

A policy trained with Holdfast {version}: {how}.

| | |
|---|---|
| world | {world} |
| started from | {policy} |
| seed | {seed} |
| checkpoint | {checkpoint} (round {round}, step {step}) |
| reward ensemble | version {ensemble} |
{figures}

The figures are of the run's last steps. {caution}

## Use

```python
{use}
```
"""

USE = """\
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("DIRECTORY")
model = AutoModelForCausalLM.from_pretrained("DIRECTORY")"""

# The base is the run's own reference, which is what the adapters were trained on.
ADAPTER_USE = """\
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("DIRECTORY")
base = AutoModelForCausalLM.from_pretrained("RUN/reference")
model = PeftModel.from_pretrained(base, "DIRECTORY")"""


WORDS = {
    "loop": {
        "tag": "ppo",
        "how": "online RLHF with a reward ensemble that moves with the policy",
        "caution": "The proxy is what the reward ensemble says, in standard deviations of the\nreference's scores; "
        "it is not a measure of quality by itself.",
    },
    "dpo": {
        "tag": "dpo",
        "how": "DPO on labelled pairs",
        "caution": "There was no reward model.",
    },
}


def export_policy(run: RunDirectory, out: Path, checkpoint: str | None, adapters: bool = False) -> str:
    """Write the policy of a checkpoint to `out`; returns the checkpoint's name.

    Of a LoRA run the adapters are merged into the weights, or written alone for the base that is in the run directory.
    """
    if out.exists():
        raise HoldfastError(f"{out} exists already; export to a directory that does not.")
    config = run.config().policy
    if adapters and not config.lora_rank:
        raise HoldfastError(f"{run.path} was not trained with adapters (policy.lora_rank); export the whole model.")
    lm, codec, name, snapshot = checkpoint_policy(run, checkpoint, config.dtype, merge=not adapters)
    card = model_card(run, name, snapshot, ADAPTER_USE if adapters else USE)

    def write(temporary: Path) -> None:
        if adapters:
            save_adapters(temporary, lm, lora_of(config), str(run.reference))
        else:
            lm.save_pretrained(temporary, safe_serialization=True)
        codec.tokenizer.save_pretrained(temporary)
        (temporary / "README.md").write_text(card, encoding="utf-8")

    write_model_directory(out, write)
    return name


def model_card(run: RunDirectory, checkpoint: str, snapshot: Snapshot, use: str = USE) -> str:
    """What the model is, where it came from, and how it did."""
    manifest = run.manifest()
    position, stage = state_of(snapshot, "position"), "dpo" if manifest.get("stage") == "dpo" else "loop"
    return CARD.format(
        name=run.name,
        **WORDS[stage],
        version=manifest.get("holdfast_version"),
        world=manifest.get("world"),
        policy=manifest.get("policy"),
        seed=manifest.get("seed"),
        checkpoint=checkpoint,
        round=position["round"] - (position["step_in_round"] == 0),
        step=position["step"],
        ensemble=0 if stage == "dpo" else state_of(snapshot, "ensemble")["version"],
        use=use,
        figures=figure_rows(read_run(run.path), int(position["step"])),
    )


def figure_rows(data: RunData, step: int) -> str:
    """Table rows with the figures at the exported step."""
    rows = []
    for label, metric in (
        ("proxy", "objective/scores"),
        ("KL to the reference (nats per answer)", "objective/kl"),
        ("answer length (tokens)", "response/length_mean"),
    ):
        known = [value for at, value in data.known(metric) if at <= step]
        if known:
            rows.append(f"| {label} | {dict(kept_curve(data, metric)).get(step, known[-1]):.2f} |")
    gold = [value for at, value in data.gold_of("heldout") if at <= step]
    if gold:
        rows.append(f"| gold on held-out prompts | {gold[-1]:.2f} (reference {gold[0]:.2f}) |")
    return "\n".join(rows)


def export_labels(run: RunDirectory, out: Path, conversational: bool) -> tuple[int, int]:
    """Write the run's labelled comparisons, each once; returns rows written and ties left out."""
    with PreferenceStore.open(run.database_url(run.config())) as store:
        once = (item for item in store.each_labelled() if item.comparison.purpose != "repeat")
        result = write_preferences(out, once, conversational=conversational)
    return result.written, result.skipped
