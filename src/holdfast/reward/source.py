"""From scores to the reward that a policy is trained on: what the loop asks of any reward, and that of an ensemble.

Shapes: K member, B answers, D features of an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from holdfast.config.schema import FlawConfig, RewardConfig
from holdfast.reward.aggregate import aggregate, bounded, spread
from holdfast.reward.ensemble import Ensemble
from holdfast.rollout.sampler import Rollout


@dataclass(frozen=True)
class Scored:
    """What the reward says of a batch: every member's score, the aggregate, and the reward after shaping.

    Of a reward that is one number, `given_B` is that number, NaN where an answer could not be scored: such an answer
    has no part in what is learnt. `components` are its parts, `unscored` says why some answers have none, and `reasons`
    the same of the batch, the commonest first.
    """

    members_KB: Tensor
    scores_B: Tensor
    rewards_B: Tensor
    features_BD: Tensor
    version: int
    labels: int
    degraded: int = 0
    given_B: Tensor | None = None
    components: Mapping[str, Tensor] = field(default_factory=dict)
    unscored: Mapping[int, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()

    @property
    def mean(self) -> float:
        """The mean score of the answers that have one."""
        return float(self.scores_B[self.scored_B].mean())

    @property
    def scored_B(self) -> Tensor:
        """Which answers have a score."""
        return torch.ones(len(self.scores_B), dtype=torch.bool) if self.given_B is None else ~self.given_B.isnan()

    def metrics(self) -> dict[str, float]:
        if self.given_B is not None:
            return self._given_metrics(self.given_B[self.scored_B])
        return {
            **({"ensemble/degraded": float(self.degraded)} if self.degraded else {}),
            "objective/scores": self.mean,
            "ensemble/spread": float(spread(self.members_KB).mean()),
            "ensemble/version": float(self.version),
            "ensemble/labels": float(self.labels),
        }

    def _given_metrics(self, scored: Tensor) -> dict[str, float]:
        """Of a reward that is one number: its mean, that of each component, and the share that was not scored."""
        parts = {f"reward/component/{name}": values_B[~values_B.isnan()] for name, values_B in self.components.items()}
        return {
            "objective/scores": float(scored.mean()),
            "reward/unscored": 1.0 - len(scored) / len(self.scores_B),
            **{name: float(values.mean()) for name, values in parts.items() if len(values)},
        }


class Reward(Protocol):
    """What the loop asks of its reward."""

    @property
    def labels(self) -> int:
        """How many labels it has learnt from."""
        ...

    @property
    def version(self) -> int:
        """Which of its versions scores; 0 where it has none."""
        ...

    def set_round(self, round: int) -> None:
        """A round begins."""
        ...

    def score(self, rollout: Rollout) -> Tensor:
        """scores_KB: what each opinion says of each answer; NaN where it has none."""
        ...

    def reward(self, rollout: Rollout, rng: torch.Generator) -> Scored:
        """What the answers of a step are worth."""
        ...

    def fault(self, scored: Scored) -> str:
        """Why nothing can be learnt from these scores; empty as a rule."""
        ...

    def mend(self, scored: Scored, steps: int) -> bool:
        """Go on without what was at fault in so many steps in a row; whether that can be done."""
        ...


@dataclass
class RewardSource:
    """Scores with the ensemble, aggregates, shapes. `reference_answers` samples the reference for bounded shaping."""

    ensemble: Ensemble
    config: RewardConfig
    reference_answers: Callable[[list[list[int]], torch.Generator], Rollout]
    flaw: FlawConfig = field(default_factory=FlawConfig)

    @property
    def labels(self) -> int:
        return self.ensemble.labels

    @property
    def version(self) -> int:
        return self.ensemble.version

    def set_round(self, round: int) -> None:
        """A flaw that was planted in the reward counts from its onset on."""
        self.ensemble.bonus_scale = self.flaw.weight if round >= self.flaw.onset else 0.0

    def score(self, rollout: Rollout) -> Tensor:
        return self.ensemble.scores(rollout.prompts, rollout.responses)

    def reward(self, rollout: Rollout, rng: torch.Generator) -> Scored:
        """The aggregate, bounded against a reference answer if so configured, less the penalty for not ending."""
        members_KB, features_BD = self.ensemble.judge(rollout.prompts, rollout.responses)
        scores_B = self._aggregate(members_KB)
        rewards_B = scores_B
        if self.config.shaping == "sigmoid":
            answers = self.reference_answers(rollout.prompts, rng)
            rewards_B = bounded(scores_B, self._aggregate(self.score(answers)))
        unfinished_B = 1.0 - torch.tensor(rollout.finished, dtype=torch.float32)
        penalty_B = self.config.unfinished_penalty * unfinished_B
        made = self.ensemble.version, self.ensemble.labels, len(self.ensemble.degraded)
        return Scored(members_KB, scores_B, rewards_B - penalty_B, features_BD, *made)

    def fault(self, scored: Scored) -> str:
        bad = self._bad_members(scored)
        return f"the scores of reward member {' and '.join(map(str, bad))} are not all numbers" if bad else ""

    def mend(self, scored: Scored, steps: int) -> bool:
        """Leave out the members whose scores are no numbers, where enough others are left."""
        bad = self._bad_members(scored)
        if not self.ensemble.can_spare(len(bad)):
            return False
        for member in bad:
            self.ensemble.degrade(member, f"gave scores that are not numbers in {steps} steps in a row")
        return True

    def _bad_members(self, scored: Scored) -> list[int]:
        bad_K = ~scored.members_KB.isfinite().all(1)
        return [self.ensemble.sound[place] for place in bad_K.nonzero()[:, 0].tolist()]

    def _aggregate(self, members_KB: Tensor) -> Tensor:
        return aggregate(members_KB, self.config.aggregation)
