"""From an ensemble's scores to the reward a policy is trained on.

Shapes: K member, B answers, D features of an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

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
    has no part in what is learnt. `components` are its parts, and `unscored` says why some answers have none.
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

    @property
    def scored_B(self) -> Tensor:
        """Which answers have a score."""
        return torch.ones(len(self.scores_B), dtype=torch.bool) if self.given_B is None else ~self.given_B.isnan()

    def metrics(self) -> dict[str, float]:
        if self.given_B is not None:
            return self._given_metrics(self.scores_B[self.scored_B])
        return {
            **({"ensemble/degraded": float(self.degraded)} if self.degraded else {}),
            "objective/scores": float(self.scores_B.mean()),
            "ensemble/spread": float(spread(self.members_KB).mean()),
            "ensemble/version": float(self.version),
            "ensemble/labels": float(self.labels),
        }

    def _given_metrics(self, scored: Tensor) -> dict[str, float]:
        """Of a reward that is one number: its mean, that of each component, and the share that was not scored."""
        parts = {f"reward/component/{name}": values_B[~values_B.isnan()] for name, values_B in self.components.items()}
        return {
            "objective/scores": float(scored.mean()),
            "reward/unscored": len(self.unscored) / len(self.scores_B),
            **{name: float(values.mean()) for name, values in parts.items() if len(values)},
        }


@dataclass
class RewardSource:
    """Scores with the ensemble, aggregates, shapes. `reference_answers` samples the reference for bounded shaping."""

    ensemble: Ensemble
    config: RewardConfig
    reference_answers: Callable[[list[list[int]], torch.Generator], Rollout]
    flaw: FlawConfig = field(default_factory=FlawConfig)

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

    def _aggregate(self, members_KB: Tensor) -> Tensor:
        return aggregate(members_KB, self.config.aggregation)
