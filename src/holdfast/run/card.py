"""The model card of an exported policy: what it is, how to use it, what it was trained on, and how it did.

    run directory as it was at the checkpoint -> Delivered (the same figures as everywhere) -> README.md

Its front matter is what a model hub reads: licence, base model, data sets, and the evaluation with its intervals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from holdfast.checkpoint.snapshot import Snapshot
from holdfast.checkpoint.transaction import DOCUMENT, state_of
from holdfast.config import Config
from holdfast.config.schema import DataConfig
from holdfast.data.formats import IMPORTED
from holdfast.data.tables import HUB_SOURCE
from holdfast.documents import json_of
from holdfast.errors import HoldfastError
from holdfast.models import smollm2
from holdfast.people.accounts import AccountStore
from holdfast.report.data import RunData, read_run
from holdfast.report.delivered import GOLD, KL_FIGURE, PROXY_FIGURE, REWARD_FIGURE, Delivered, delivered
from holdfast.report.rounds import summary
from holdfast.report.undone import undone_by
from holdfast.report.words import accuracy, verdict
from holdfast.run.directory import RunDirectory
from holdfast.statistics import wilson
from holdfast.text import counted, one_line, sentence, visible
from holdfast.worlds.registry import WORLDS

# What the hub calls a licence that nobody has told it.
UNKNOWN_LICENCE = "unknown"
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
# Where huggingface_hub keeps what it has fetched: models--OWNER--NAME/snapshots/...
CACHED = re.compile(r"models--([\w.-]+?)--([\w.-]+)")
FRONT = re.compile(r"---\r?\n(.*?)\r?\n---", re.DOTALL)
LICENCE = re.compile(r"""^license:\s*["']?([\w.-]{1,64})["']?\s*$""", re.MULTILINE)
LONGEST_FRONT = 1 << 20

HOW = {
    "": "online RLHF with a reward ensemble that moves with the policy",
    "given": "online reinforcement learning under a guard, against a reward that was given",
    "dpo": "DPO on labelled pairs, without a reward model",
}
PROXY_CAUTION = (
    "The proxy is what the reward ensemble says, in standard deviations of the reference's scores. Training pushes it "
    "up, so it is no measure of quality by itself."
)
REWARD_CAUTION = (
    "The reward is what {name} says of the answers. Training pushes it up, so it is no measure of quality by itself."
)
CARD = """\
---
{front}
---

# {name}

A policy trained with Holdfast {version}: {how}. It is {policy}.

## Use

{use}

## Figures

{figures}

## Training

{training}

## Licence

{licence}
"""

LOAD = """\
from transformers import AutoModelForCausalLM, AutoTokenizer

place = {place!r}  # {where}
tokenizer = AutoTokenizer.from_pretrained(place)
model = AutoModelForCausalLM.from_pretrained(place)"""
# The adapters name the run's own reference as their base, which is what they were trained on.
LOAD_ADAPTERS = """\
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

place = {place!r}  # {where}
tokenizer = AutoTokenizer.from_pretrained(place)
model = AutoPeftModelForCausalLM.from_pretrained(place)  # on the base that adapter_config.json names"""
TEMPLATED = """\
messages = [{{"role": "user", "content": {prompt!r}}}]
text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
inputs = tokenizer(text, add_special_tokens=False, return_tensors="pt")
{generate}"""
PLAIN = """\
inputs = tokenizer({prompt!r}, return_tensors="pt")
{generate}"""
GENERATE = """\
answer = model.generate(
    inputs["input_ids"], attention_mask=inputs["attention_mask"], max_new_tokens={tokens}, do_sample=True,
    temperature={temperature:g}, top_p={top_p:g}, top_k={top_k}, pad_token_id={pad},
)
print(tokenizer.decode(answer[0, inputs["input_ids"].shape[1]:], skip_special_tokens=True))"""


@dataclass(frozen=True)
class Base:
    """What is known of the model that the policy started from: its name on the hub, and its licence."""

    name: str | None = None
    licence: str | None = None


def model_card(
    run: RunDirectory,
    checkpoint: str,
    snapshot: Snapshot,
    tokenizer: Any,
    adapters: bool,
    hub: str | None = None,
    undone: str = "",
) -> str:
    """The card of the policy that a checkpoint holds; `undone` says that the run did not keep it, if it did not."""
    config, manifest = run.config(), run.manifest()
    data = as_of(run, snapshot)
    policy, base = delivered(data), base_of(config.policy.path)
    return CARD.format(
        front=front_matter(run, config, policy, base, adapters, hub),
        name=one_line(hub or run.name),
        version=manifest.get("holdfast_version"),
        how=HOW["dpo" if manifest.get("stage") == "dpo" else "given" if data.given_reward else ""],
        policy=policy.policy,
        use=usage(config, data, tokenizer, adapters, hub),
        figures="\n\n".join([*([undone] if undone else []), figures(data, policy)]),
        training=training(run, config, data, policy, checkpoint, base, watermark_of(snapshot)),
        licence=licence(base),
    )


def as_of(run: RunDirectory, snapshot: Snapshot) -> RunData:
    """The run's files as they were when the checkpoint was made: what came later is not about this policy."""
    return read_run(run.path, {name: int(place["size"]) for name, place in state_of(snapshot, "files").items()})


def undone_later(run: RunDirectory, snapshot: Snapshot) -> str:
    """That the run went back behind the policy of a checkpoint after that was made, and why; empty where it did not."""
    then, now = as_of(run, snapshot), read_run(run.path)
    step, rollbacks = delivered(then).step, now.happened("rollback")
    if not undone_by(rollbacks).covers(step):
        return ""
    known = len(then.happened("rollback"))
    by = next(
        event for count, event in enumerate(rollbacks[known:], known + 1) if undone_by(rollbacks[:count]).covers(step)
    )
    return sentence(f"The run later undid this policy, in round {by.round:,}: {one_line(by.fields['reason'])}")


def watermark_of(snapshot: Snapshot) -> int | None:
    """The newest label that a checkpoint knows of; None of a run that asks nobody."""
    document: Any = snapshot.documents.get(DOCUMENT, {})
    return document["collector"]["watermark"] if "collector" in document else None


# ---- the front matter


def front_matter(
    run: RunDirectory, config: Config, policy: Delivered, base: Base, adapters: bool, hub: str | None
) -> str:
    """What a hub reads, as YAML."""
    method = "dpo" if run.manifest().get("stage") == "dpo" else "ppo"
    results = evaluation(policy, Path(config.world.name).name)
    card = ModelCardData(
        library_name="peft" if adapters else "transformers",
        pipeline_tag="text-generation",
        license=base.licence or UNKNOWN_LICENCE,
        base_model=base.name,
        datasets=hub_datasets(config.data) or None,
        tags=["holdfast", "rlhf", method],
        eval_results=results or None,
        model_name=hub or run.name if results else None,
    )
    return str(card.to_yaml())


def evaluation(policy: Delivered, world: str) -> list[EvalResult]:
    """The delivered policy's measurements as the hub's model index has them, each with its count and interval."""
    results = []

    def add(kind: str, name: str, dataset: str, value: float, args: Mapping[str, object]) -> None:
        results.append(
            EvalResult(
                task_type="text-generation", dataset_type="holdfast", dataset_name=f"{world}: {dataset}",
                metric_type=kind, metric_name=name, metric_value=round(value, 6), metric_args=dict(args),
            )
        )  # fmt: skip

    if rate := policy.preferred_to_reference:
        args = {"low": rate.low, "high": rate.high, "pairs": rate.pairs, "answered_by": rate.answered_by}
        add("win_rate", "preferred to the reference", "fresh pairs", rate.rate, args)
    right = policy.figures.get("right about held-out pairs")
    if right is not None and right.count:
        interval = wilson(right.end * right.count, right.count)
        args = {"low": interval.low, "high": interval.high, "pairs": right.count}
        add("accuracy", "right about held-out pairs", "held-out pairs", right.end, args)
    if gold := policy.figures.get(GOLD):
        add("gold", GOLD, "held-out prompts", gold.end, {"answers": gold.count, "reference": gold.start})
    if kl := policy.figures.get(KL_FIGURE):
        add("kl", "KL to the reference, nats per answer", "prompts", kl.end, {"answers": kl.count})
    return results


def base_of(path: str) -> Base:
    """What a model directory, or that of the run it came from, tells of itself; nothing of one that is not there."""
    directory = Path(path)
    if path == smollm2.NAME and not directory.exists():
        return Base(smollm2.HUB_NAME, smollm2.LICENCE)
    if not path or not directory.is_dir():
        return Base() if "@" not in path else base_of(path.rpartition("@")[0])
    if (directory / "manifest.json").is_file() and not (directory / "config.json").is_file():
        return base_of(RunDirectory.open(directory).config().policy.path)
    cached = CACHED.search(str(directory.resolve()))
    name = f"{cached[1]}/{cached[2]}" if cached else _named_in(directory / "config.json")
    return Base(name, _licence_in(directory / "README.md"))


def _named_in(config: Path) -> str | None:
    try:
        name = json_of(config.read_text(encoding="utf-8")).get("_name_or_path")
    except (AttributeError, OSError, ValueError):
        return None
    return name if isinstance(name, str) and HUB_NAME.fullmatch(name) else None


def _licence_in(readme: Path) -> str | None:
    """The licence in the front matter of a card, which is somebody else's text and not parsed any further."""
    try:
        with readme.open(encoding="utf-8", errors="replace") as file:
            front = FRONT.match(file.read(LONGEST_FRONT))
    except OSError:
        return None
    licence = LICENCE.search(front[1]) if front else None
    return licence[1] if licence else None


def hub_datasets(data: DataConfig) -> list[str]:
    """The data sets of the hub that the settings name."""
    sources = (data.prompts, data.heldout_prompts, data.demonstrations, data.preferences)
    return sorted({named["name"] for source in sources if (named := HUB_SOURCE.fullmatch(source))})


# ---- sections


def usage(config: Config, data: RunData, tokenizer: Any, adapters: bool, hub: str | None) -> str:
    """How to load the policy and have it answer, as it was asked in training."""
    where = "the repository; or the path of this directory" if hub else "the path of this directory"
    load = (LOAD_ADAPTERS if adapters else LOAD).format(place=hub or ".", where=where)
    rollout = config.rollout
    generate = GENERATE.format(
        tokens=rollout.max_new_tokens,
        temperature=rollout.temperature,
        top_p=rollout.top_p,
        top_k=rollout.top_k,
        pad=tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id,
    )
    # Prompts of people's own data are theirs; those of a built-in world may be shown.
    shown = data.samples[0].prompt if config.world.name in WORLDS and data.samples else "What can you do for me?"
    plain = PLAIN.format(prompt=shown if shown.endswith((" ", "\n")) else shown + "\n", generate=generate)
    if tokenizer.chat_template is None:
        asked = "The tokenizer has no chat template. In training a prompt was its text and a line break:"
        return "\n\n".join([_code(load), asked, _code(plain)])
    templated = TEMPLATED.format(prompt=shown, generate=generate)
    asked = "With the chat template, as in training:"
    otherwise = "Without it, as text that is gone on with, which it was not trained on:"
    return "\n\n".join([_code(load), asked, _code(templated), otherwise, _code(plain)])


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def figures(data: RunData, policy: Delivered) -> str:
    """The delivered policy's figures with counts and intervals, the guard's verdict, and rollbacks."""
    rows = [f"| {_label(name)} | {figure.start:z.2f} | {figure.end:z.2f} | {figure.over} |"
            for name, figure in policy.figures.items()]  # fmt: skip
    table = ["| | reference | this policy | |", "|---|---|---|---|", *rows]
    parts = ["\n".join(table)] if rows else ["It was never measured."]
    if rows:
        parts.append(sentence(f"measured: {policy.measured_words}"))
    if PROXY_FIGURE in policy.figures:
        version = "" if policy.reward_version is None else f" It is by version {policy.reward_version} of the ensemble."
        if policy.two_scales:
            version += f" The reference's is by version {policy.reference_version}, which is another scale."
        parts.append(PROXY_CAUTION + version)
    if REWARD_FIGURE in policy.figures:
        parts.append(REWARD_CAUTION.format(name=one_line(data.given_reward)))
    parts += [line for line in (_preferences(policy), _verdict(data, policy), accuracy(data, policy)) if line]
    return "\n\n".join(parts)


def _label(name: str) -> str:
    return f"{name} (nats per answer)" if name == KL_FIGURE else name


def _preferences(policy: Delivered) -> str:
    rate = policy.preferred_to_reference
    if rate is None and policy.unanswered:
        asked = counted(policy.unanswered, "comparison of this policy was", "comparisons of this policy were")
        return f"{asked} asked, and none was answered."
    if rate is None:
        return "" if policy.is_reference else "Nobody was asked to compare this policy with the reference."
    claimed = "" if rate.claimed is None else f"; the {rate.claimant} claimed {rate.claimed:.0%}"
    share = rate.share.of("fresh pair")
    return f"{sentence(f'{rate.answered_by} preferred it to the reference in {share}{claimed}')}"


def _verdict(data: RunData, policy: Delivered) -> str:
    guard = summary(data)
    if guard is None:
        return "No guard watched over the run."
    on_it = f"The guard's verdict on this policy, in round {policy.judged_in}: {policy.verdict}. "
    own = on_it if policy.verdict else ""
    return f"{own}The guard's last word up to this checkpoint: {verdict(guard)}."


def training(
    run: RunDirectory,
    config: Config,
    data: RunData,
    policy: Delivered,
    checkpoint: str,
    base: Base,
    watermark: int | None,
) -> str:
    """Where it came from, and how much data and how many labels went into it, by whom."""
    started = base.name or (
        Path(config.policy.path).name if config.policy.path else "a small model that Holdfast builds"
    )
    rows = [
        ("started from", started),
        ("world", Path(config.world.name).name),
        ("seed", str(config.run.seed)),
        ("checkpoint", f"{checkpoint}, which holds {policy.policy} (step {policy.step:,})"),
        *((f"data, {name}", Path(source).name) for name, source in _sources(config.data) if source),
    ]
    shown = data.happened("sft_finished")[-1:]
    rows += [("demonstrations", f"{event.fields['demonstrations']:,}") for event in shown]
    rows += [("pairs", event.text) for event in data.happened("pairs_ready")[-1:]]
    rows += label_rows(run, config, watermark)
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {_cell(value)} |" for name, value in rows)])


def _sources(data: DataConfig) -> list[tuple[str, str]]:
    names = ("prompts", "heldout_prompts", "demonstrations", "preferences")
    return [(name.replace("_", " "), getattr(data, name)) for name in names]


def label_rows(run: RunDirectory, config: Config, watermark: int | None) -> list[tuple[str, str]]:
    """How many labels the run's store had up to a watermark, by who gave them; people are counted and not named."""
    if not config.preferences.url and not run.database_file.is_file():
        return [("labels", "unknown: the label store is not there")]
    try:
        with run.open_store(config) as store:
            counts = store.labels_by_labeller(watermark)
            people = {account.name for account in AccountStore(store.database).all()}
    except HoldfastError as error:
        return [("labels", f"unknown: {error}")]
    simulated = not config.world.labeller and config.world.name in WORLDS

    def who(name: str) -> str:
        if name in people:
            return "people"
        if name.startswith("judge:"):
            return f"the judge ({name.removeprefix('judge:')})"
        if name == IMPORTED:
            return "whoever labelled the data"
        return "the simulated labeller" if simulated else "the run's own labeller, or those that the data names"

    by: dict[str, int] = {}
    for name, count in counts.items():
        by[who(name)] = by.get(who(name), 0) + count
    rows = [] if len(by) == 1 else [("labels", f"{sum(counts.values()):,}")]
    named = sum(name in people for name in counts)
    for word, count in by.items():
        rows.append((f"labels by {word}", counted(count, "label") + (f" of {named}" if word == "people" else "")))
    return rows


def licence(base: Base) -> str:
    """The licence, or that somebody has to fill it in."""
    if base.licence:
        return f"That of the model it started from: {base.licence}. Data and labels may ask for more."
    return (
        f"Nobody has told it: the model that this one started from does not say. Write it into `license:` above in "
        f"place of `{UNKNOWN_LICENCE}` before you pass the model on."
    )


def _cell(text: str) -> str:
    return visible(one_line(text)).replace("|", "\\|")
