"""What of a user's own data a run leaves out: texts beyond the limits, and labels on held-out prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.config import Config
from holdfast.data.splits import LengthMeasure, Lengths
from holdfast.errors import HoldfastError
from holdfast.models.codec import Codec
from holdfast.preferences.comparison import LabelledComparison
from holdfast.worlds.protocol import Task


def within_limits(
    config: Config, task: Task, imported: Sequence[LabelledComparison], codec: Codec
) -> tuple[Task, Sequence[LabelledComparison]]:
    """Task and imported labels without what is left out; the task's notes say how much that was."""
    heldout = set(task.heldout_prompts)
    kept = [item for item in imported if item.comparison.prompt not in heldout]
    notes = _note(len(imported), len(kept), "imported comparisons", "are about held-out prompts")
    limits = Lengths.of(config.data)
    if limits.limited:
        measure = measure_of(limits, codec)
        fitting = [item for item in kept if measure.comparison_fits(limits, item)]
        notes += _note(len(kept), len(fitting), "imported comparisons", "are beyond the limits of data")
        kept = fitting
        if config.world.name == "files":
            task = _task_within(task, limits, measure)
    return replace(task, notes=(*task.notes, *notes)), kept


def measure_of(limits: Lengths, codec: Codec | None) -> LengthMeasure:
    """Lengths in the unit of the limits, in the words of the policy's tokenizer."""
    if limits.unit == "characters" or codec is None:
        return LengthMeasure()
    return LengthMeasure(lambda prompt: len(codec.encode_prompt(prompt)), lambda text: len(codec.encode_response(text)))


def _task_within(task: Task, limits: Lengths, measure: LengthMeasure) -> Task:
    prompts = [p for p in task.prompts if limits.fits(measure.prompt(p))]
    heldout = [p for p in task.heldout_prompts if limits.fits(measure.prompt(p))]
    demonstrations = [d for d in task.demonstrations if measure.demonstration_fits(limits, d)]
    if not prompts:
        raise HoldfastError(
            f"None of the {len(task.prompts):,} prompts is within the limits, in {limits.unit}; "
            "change data.prompt_length."
        )
    if task.demonstrations and not demonstrations:
        raise HoldfastError(
            f"None of the {len(task.demonstrations):,} demonstrations is within the limits, in {limits.unit}; "
            "change data.prompt_length or data.answer_length."
        )
    beyond = "are beyond the limits of data"
    notes = _note(len(task.prompts), len(prompts), "prompts", beyond)
    notes += _note(len(task.heldout_prompts), len(heldout), "held-out prompts", beyond)
    notes += _note(len(task.demonstrations), len(demonstrations), "demonstrations", beyond)
    return replace(
        task, prompts=prompts, heldout_prompts=heldout, demonstrations=demonstrations, notes=(*task.notes, *notes)
    )


def _note(before: int, after: int, what: str, why: str) -> tuple[str, ...]:
    return (f"{before - after:,} of {before:,} {what} {why} and are left out.",) if after < before else ()
