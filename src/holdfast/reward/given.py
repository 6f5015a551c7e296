"""A reward that is given: what a source says of answers, standardised once on the reference's own.

    score  = (what the source says - mean) / standard deviation, both of the reference's answers before the first step
    reward = score + what a corrective says, where one is in use, less the penalty for an answer that does not end

The unit is the same as an ensemble's, so that beta keeps its meaning. An answer that could not be scored is NaN from
beginning to end.

Shapes: B answers, P pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from holdfast.config.schema import RewardConfig
from holdfast.errors import HoldfastError
from holdfast.models.prompt import Prompt
from holdfast.preferences.pair import Pair
from holdfast.reward.corrective import AUDIT_LABELS, Corrective
from holdfast.reward.scores import AdjustableSource, Asked, Columns, Discount, Scores
from holdfast.reward.source import Scored
from holdfast.rollout.sampler import Rollout
from holdfast.text import counted, percent

# What a source that names no components is called beside the audit labels.
GIVEN = "the given reward"


class PromptRow(NamedTuple):
    """A prompt as the source is asked about it: its text or turns, and the further columns of its row."""

    prompt: Prompt
    columns: Columns


@dataclass(frozen=True)
class Standard:
    """What the reference's own answers get: the zero and the unit of scores, and the mean of each component."""

    mean: float = 0.0
    sd: float = 1.0
    components: Mapping[str, float] = field(default_factory=dict)
    scored: int = 0
    asked: int = 0
    flat: bool = False  # all were the same, so that the unit is the reward's own


@dataclass
class GivenReward:
    """Scores by a source that nothing trains. `rows` are the prompts by their tokens, `group` neighbours answer one.

    `labels_so_far` is how many labels have told what the reward is worth to people.
    """

    source: AdjustableSource
    config: RewardConfig
    rows: Mapping[tuple[int, ...], PromptRow]
    decode: Callable[[Sequence[int]], str]
    eos_id: int
    group: int = 1
    standard: Standard = field(default_factory=Standard)
    files: Mapping[str, str] = field(default_factory=dict)  # what it is made of, with the digests of its contents
    changed: list[str] = field(default_factory=list)  # those that a checkpoint was saved with otherwise
    labels_so_far: Callable[[], int] = lambda: 0
    corrective: Corrective | None = None  # what the guard may add to it

    @property
    def labels(self) -> int:
        return self.labels_so_far()

    @property
    def version(self) -> int:
        return 0

    def set_round(self, round: int) -> None:
        """Nothing of a reward that is given depends on the round."""

    def state(self) -> dict[str, Any]:
        standard = {**vars(self.standard), "components": dict(self.standard.components)}
        corrective = {} if self.corrective is None else {"corrective": self.corrective.state()}
        return {"standard": standard, "source": self.source.state(), "files": dict(self.files), **corrective}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.standard = Standard(**state["standard"])
        self.source.restore(state["source"])
        if self.corrective is not None:
            self.corrective.restore(state.get("corrective"))
        self.changed = sorted(name for name, digest in self.files.items() if state["files"].get(name) != digest)

    def standardise(self, rollout: Rollout) -> Standard:
        """Take zero and unit from the reference's answers."""
        scores = self._ask(rollout, self.group)
        total_B = scores.total_B[scores.scored_B].double()
        if len(total_B) < 2:
            why = "; ".join(scores.reasons())
            raise HoldfastError(
                f"The reward {self.source.name} scored {counted(len(total_B), 'answer')} of {len(rollout.prompts)} of "
                f"the reference's ({why}): mend it first, or look at its columns."
            )
        sd = float(total_B.std(unbiased=False))
        means = {name: _mean(values_B) for name, values_B in scores.components.items()}
        flat, answers = sd == 0.0, len(rollout.prompts)
        unit = 1.0 if flat else sd
        self.standard = Standard(float(total_B.mean()), unit, means, len(total_B), answers, flat)
        return self.standard

    def score(self, rollout: Rollout) -> Tensor:
        """scores_KB of the one opinion: what the source itself says."""
        return self._ask(rollout, 1).total_B[None]

    def scores(self, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]) -> Tensor:
        """The same of answers as tokens, in groups."""
        ends = [bool(response) and response[-1] == self.eos_id for response in responses]
        answers = [self.decode(response) for response in responses]
        return self.source.score(self._asked(prompts, answers, ends, self.group)).total_B[None]

    def reward(self, rollout: Rollout, rng: torch.Generator) -> Scored:
        """The standardised score, less the penalty for not ending."""
        scores = self._ask(rollout, self.group)
        score_B = (scores.total_B - self.standard.mean) / self.standard.sd
        components = scores.components
        if self.corrective is not None and self.corrective.in_use:
            added_B = self.corrective.scores(rollout.prompts, rollout.responses)
            score_B = score_B + added_B
            components = self._with_labels(components, scores.total_B, added_B)
        unfinished_B = 1.0 - torch.tensor(rollout.finished, dtype=torch.float32)
        return Scored(
            score_B[None],
            score_B,
            score_B - self.config.unfinished_penalty * unfinished_B,
            torch.zeros(len(score_B), 0),
            self.version,
            self.labels,
            given_B=scores.total_B,
            components=components,
            unscored=scores.unscored,
            reasons=tuple(scores.reasons()),
        )

    def fault(self, scored: Scored) -> str:
        """That too many answers have no score, with the commonest reasons."""
        answers, limit = len(scored.scores_B), self.config.unscored_limit
        count = answers - int(scored.scored_B.sum())
        if count <= limit * answers and count < answers:
            return ""
        return (
            f"{count} of {counted(answers, 'answer')} could not be scored, where reward.unscored_limit "
            f"allows {percent(limit)} ({'; '.join(scored.reasons)})"
        )

    def mend(self, scored: Scored, steps: int) -> bool:
        """There is nothing else to go on with."""
        return False

    def margins(self, pairs: Sequence[Pair]) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        """margin_P: how much more the first sides get, of which component, and by the reward that no component of was
        counted for less; NaN where a side has no score."""
        tokens = [side for pair in pairs for side in (pair.a, pair.b)]
        ends = [bool(side) and side[-1] == self.eos_id for side in tokens]
        prompts = [pair.prompt for pair in pairs for _ in "ab"]
        # Whoever can only compare answers is asked about both sides at once; others take each by itself.
        group = 2 if self.source.compares else 1
        scores = self.source.score(self._asked(prompts, [self.decode(side) for side in tokens], ends, group))
        parts = {name: values_B[0::2] - values_B[1::2] for name, values_B in scores.components.items()}
        margin_P, whole_P = (total_B[0::2] - total_B[1::2] for total_B in (scores.total_B, scores.undiscounted_B))
        if self.corrective is None or not self.corrective.in_use:
            return margin_P, parts, whole_P
        added_P = self.corrective.margins(pairs)
        more_P = self.standard.sd * added_P
        return margin_P + more_P, self._with_labels(parts, margin_P, added_P), whole_P + more_P

    def _with_labels(self, components: Mapping[str, Tensor], given: Tensor, added: Tensor) -> dict[str, Tensor]:
        """The components with what the corrective adds, all in the unit of the reward that is given."""
        return {**(components or {GIVEN: given}), AUDIT_LABELS: self.standard.sd * added}

    def discount(self, component: str, factor: float) -> Discount | None:
        """Count a component for less than it does; of one that is no share of the reward, the whole.

        What people's own answers have added stays: it is made anew of more of them.
        """
        if component == AUDIT_LABELS:
            return None
        return self.source.discount(component, factor) or self.source.discount("", factor)

    def _ask(self, rollout: Rollout, group: int) -> Scores:
        answers = rollout.texts or [self.decode(response) for response in rollout.responses]
        return self.source.score(self._asked(rollout.prompts, answers, rollout.finished, group))

    def _asked(
        self, prompts: Sequence[Sequence[int]], answers: Sequence[str], finished: Sequence[bool], group: int
    ) -> Asked:
        rows = [self.rows[tuple(prompt)] for prompt in prompts]
        return Asked([row.prompt for row in rows], answers, [row.columns for row in rows], finished, group)


def _mean(values_B: Tensor) -> float:
    known_B = values_B[~values_B.isnan()].double()
    return float(known_B.mean()) if len(known_B) else 0.0
