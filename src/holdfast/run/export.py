"""Taking results out of a run: the policy as a Hugging Face directory with a model card, the labels as rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.data.formats import write_preferences
from holdfast.errors import HoldfastError
from holdfast.models.load import write_model_directory
from holdfast.models.lora import lora_of, save_adapters
from holdfast.report.delivered import delivered
from holdfast.run.card import as_of, model_card, undone_later
from holdfast.run.directory import RunDirectory
from holdfast.run.hub import Hub
from holdfast.run.origin import checkpoint_policy


@dataclass(frozen=True)
class Exported:
    """Which checkpoint was written and whose policy that holds, where on the hub it is, and what should be known of it.

    `notes` say why newer ones were passed over, and that the run did not keep this one.
    """

    checkpoint: str
    policy: str
    pushed: str = ""
    notes: tuple[str, ...] = ()


def export_policy(
    run: RunDirectory, out: Path, checkpoint: str | None, adapters: bool = False, hub: str | None = None
) -> Exported:
    """Write the policy of a checkpoint to `out`, and push it to the hub where a name is given.

    Of a LoRA run the adapters are merged into the weights, or written alone for the base that is in the run directory.
    Where the push fails nothing is written here either, and the same may be asked for again.
    """
    if out.exists():
        raise HoldfastError(f"{out} exists already; export to a directory that does not.")
    if checkpoint is None and (goal := run.rollback_waiting()) is not None:
        raise HoldfastError(
            f"A rollback of {run.path} to {goal} is waiting: `holdfast resume {run.path}` does it, or --checkpoint "
            f"says which policy to write (--checkpoint {goal})."
        )
    config = run.config().policy
    if adapters and not config.lora_rank:
        raise HoldfastError(f"{run.path} was not trained with adapters (policy.lora_rank); export the whole model.")
    repository = None if hub is None else Hub(hub)
    lm, codec, loaded = checkpoint_policy(run, checkpoint, config.dtype, merge=not adapters)
    undone = undone_later(run, loaded.snapshot)
    card = model_card(run, loaded.name, loaded.snapshot, codec.tokenizer, adapters, hub, undone)
    pushed = ""

    def write(temporary: Path) -> None:
        if adapters:
            save_adapters(temporary, lm, lora_of(config), str(run.reference))
        else:
            lm.save_pretrained(temporary, safe_serialization=True)
        codec.tokenizer.save_pretrained(temporary)
        (temporary / "README.md").write_text(card, encoding="utf-8")
        if repository is not None:
            nonlocal pushed
            pushed = repository.push(temporary)

    write_model_directory(out, write)
    return Exported(
        loaded.name,
        delivered(as_of(run, loaded.snapshot)).policy,
        pushed,
        (*loaded.skipped, *([undone] if undone else [])),
    )


def export_labels(run: RunDirectory, out: Path, conversational: bool) -> tuple[int, int]:
    """Write the run's labelled comparisons, each once; returns rows written and ties left out."""
    with run.open_store(run.config()) as store:
        once = (item for item in store.each_labelled() if item.comparison.purpose != "repeat")
        result = write_preferences(out, once, conversational=conversational)
    return result.written, result.skipped
