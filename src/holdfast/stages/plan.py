"""Which stages a pipeline has, in which order, and what each starts from.

sft, reward, ppo, dpo, distil    a stage that starts from the policy of the stage before it
dpo@sft                          from an earlier stage's policy
dpo@ppo:round-0002               from one of its checkpoints
dpo@runs/mine@round-0003         from a run's checkpoint, a run, or a model directory
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.errors import HoldfastError

KINDS = ("sft", "reward", "ppo", "dpo", "distil")


@dataclass(frozen=True)
class Stage:
    """One stage: its kind, a label that no other has, and what it starts from (empty: what came before)."""

    number: int
    kind: str
    label: str
    start: str = ""

    @property
    def directory(self) -> str:
        return f"{self.number}-{self.label}"


def plan_stages(texts: Sequence[str]) -> list[Stage]:
    """The stages that a config names; refuses what cannot be chained."""
    if not texts:
        raise HoldfastError(f"pipeline.stages is empty; name some of {', '.join(KINDS)}.")
    stages: list[Stage] = []
    for number, text in enumerate(texts, start=1):
        kind, _, start = text.partition("@")
        if kind not in KINDS:
            raise HoldfastError(f"pipeline.stages names {kind!r}; the stages are {', '.join(KINDS)}.")
        same = sum(stage.kind == kind for stage in stages)
        stages.append(Stage(number, kind, kind if not same else f"{kind}-{same + 1}", start))
    for stage in stages:
        _check(stage, stages)
    return stages


def check_reward(stages: Sequence[Stage], given: bool) -> None:
    """Refuse a stage for which there is no ensemble, since the reward is given."""
    for stage in stages:
        if given and stage.kind in ("reward", "distil"):
            raise HoldfastError(
                f"The stage {stage.label} is about an ensemble, which a pipeline with reward.source or reward.parts "
                "does not have: leave it out of pipeline.stages."
            )


def _check(stage: Stage, stages: Sequence[Stage]) -> None:
    later = {other.label for other in stages[stage.number - 1 :]}
    named = stage.start.partition(":")[0]
    if named in later:
        raise HoldfastError(f"The stage {stage.label} cannot start from {named}, which comes no earlier.")
    earlier = [other.kind for other in stages[: stage.number - 1]]
    if stage.kind == "distil" and not {"reward", "ppo"} & set(earlier):
        raise HoldfastError("The stage distil needs a reward ensemble: put reward or ppo before it.")
