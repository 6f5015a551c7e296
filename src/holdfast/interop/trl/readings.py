"""What the guard is told of a trainer's reward, whatever it is: answers as tokens, and what they were given.

EnsembleReading      a Holdfast ensemble among the reward functions: its own tokens, members, features and claims
FunctionsReading     any reward functions: the policy's tokens, each function's values, the weighted sum that is
                     trained on, and claims by a scale that audits teach

Shapes: B answers, F reward functions, P pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from holdfast.guard.claimant import PairScores, ScalarClaimant
from holdfast.guard.course import Terms
from holdfast.interop.trl.reward import EnsembleReward
from holdfast.interop.trl.texts import TRLPrompt, prompt_of, rollout_of
from holdfast.interop.trl.trainer import end_ids_of, tokenizer_of
from holdfast.models.codec import Codec
from holdfast.preferences.collector import Claimant
from holdfast.preferences.pair import Pair
from holdfast.reward.outcome import number_of
from holdfast.reward.source import Scored
from holdfast.rollout.sampler import Rollout
from holdfast.statistics import Share

RATE, LENGTH, PART = "learning_rate", "max_completion_length", "reward function"
# values_BF of answers, of which prompts and completions are given in the policy's tokens.
Ask = Callable[[Sequence[Sequence[int]], Sequence[Sequence[int]]], Tensor]


class RewardReading(Protocol):
    """A trainer's reward as the guard sees it."""

    @property
    def codec(self) -> Codec: ...

    @property
    def claimant(self) -> Claimant: ...

    @property
    def terms(self) -> Terms: ...

    @property
    def fit(self) -> Share | None: ...

    @property
    def labels(self) -> int:
        """How many labels the reward has learnt from."""
        ...

    def read(self, prompts: Sequence[TRLPrompt], texts: Sequence[str], ids: Sequence[Sequence[int]]) -> Rollout:
        """Answers in the reading's tokens; `ids` are the policy's. How likely they were is not known here."""
        ...

    def of_batch(self, rollout: Rollout, values_BF: Tensor) -> Scored:
        """A batch of training, with what each reward function has given."""
        ...

    def of_drawn(self, rollout: Rollout) -> Scored:
        """Answers that were drawn by the guard."""
        ...


@dataclass
class EnsembleReading:
    """The ensemble says more than its score: members that may disagree, features, a probability for each pair."""

    reward: EnsembleReward

    @property
    def codec(self) -> Codec:
        return self.reward.codec

    @property
    def claimant(self) -> Claimant:
        return self.reward.ensemble

    @property
    def terms(self) -> Terms:
        return Terms(RATE, LENGTH)

    @property
    def fit(self) -> Share | None:
        return self.reward.ensemble.fit

    @property
    def labels(self) -> int:
        return self.reward.ensemble.labels

    def read(self, prompts: Sequence[TRLPrompt], texts: Sequence[str], ids: Sequence[Sequence[int]]) -> Rollout:
        return self.reward.read(prompts, texts, [self.reward.ends(each) for each in ids])

    def of_batch(self, rollout: Rollout, values_BF: Tensor) -> Scored:
        """What the ensemble said when the trainer asked it; of other processes' answers it is asked again."""
        newest = self.reward.newest
        if newest is not None and newest[0].texts == rollout.texts:
            return newest[1]
        return self.reward.score(rollout)

    def of_drawn(self, rollout: Rollout) -> Scored:
        return self.reward.score(rollout)


class FunctionsReading:
    """Any reward functions: numbers by function, of which None and NaN are not scored, and their weighted sum."""

    def __init__(self, trainer: Any, ask: Ask) -> None:
        self._trainer, self._ask = trainer, ask
        self.codec = Codec(tokenizer_of(trainer))
        self._ends = end_ids_of(trainer)
        self.names = distinct([str(name) for name in trainer.reward_func_names])
        self._weights_F = trainer.reward_weights.clone()  # before the guard counts any for less
        self.claimant = ScalarClaimant(self._pair_scores, part=PART)
        self.terms = Terms(RATE, LENGTH, reward=self.claimant.name, part=PART)
        self.fit, self.labels = None, 0

    def read(self, prompts: Sequence[TRLPrompt], texts: Sequence[str], ids: Sequence[Sequence[int]]) -> Rollout:
        tokens = [self.codec.encode_prompt(prompt_of(prompt)) for prompt in prompts]
        ended = [len(each) > 0 and each[-1] in self._ends for each in ids]
        return rollout_of(tokens, [list(each) for each in ids], ended, list(texts))

    def of_batch(self, rollout: Rollout, values_BF: Tensor) -> Scored:
        values_BF, unscored = scored_values(values_BF)
        total_B = self._total(values_BF, self._trainer.reward_weights)
        return Scored(
            members_KB=total_B.nan_to_num(0.0)[None], scores_B=total_B, rewards_B=total_B,
            features_BD=torch.zeros(len(total_B), 1), version=self.claimant.made, labels=0, given_B=total_B,
            components=self._parts(values_BF), unscored=unscored,
        )  # fmt: skip

    def of_drawn(self, rollout: Rollout) -> Scored:
        return self.of_batch(rollout, self._ask(rollout.prompts, rollout.responses))

    def _total(self, values_BF: Tensor, weights_F: Tensor) -> Tensor:
        """The weighted sum that the trainer forms; NaN where no function has given a number."""
        total_B: Tensor = (values_BF * weights_F.to(values_BF.device)).nansum(1)
        total_B[values_BF.isnan().all(1)] = torch.nan
        return total_B

    def _parts(self, values_BF: Tensor) -> dict[str, Tensor]:
        """By function, where there are several."""
        return dict(zip(self.names, values_BF.unbind(1), strict=True)) if len(self.names) > 1 else {}

    def _pair_scores(self, pairs: Sequence[Pair]) -> PairScores:
        prompts = [pair.prompt for pair in pairs for _ in range(2)]
        answers = [side for pair in pairs for side in (pair.a, pair.b)]
        values_BF, _ = scored_values(self._ask(prompts, answers))
        weights = self._trainer.reward_weights, self._weights_F
        totals = [self._total(values_BF, weights_F) for weights_F in weights]
        margin_P, whole_P = (total_B[0::2] - total_B[1::2] for total_B in totals)
        parts = {name: value_B[0::2] - value_B[1::2] for name, value_B in self._parts(values_BF).items()}
        return PairScores(margin_P, parts, whole_P)


def scored_values(values_BF: Tensor) -> tuple[Tensor, Mapping[int, str]]:
    """The values that are scores, NaN in place of others, and why answers without any have none."""
    values_BF = values_BF.detach().float().cpu()
    read = [[number_of(value) for value in row] for row in values_BF.tolist()]
    numbers = [[value if isinstance(value, float) else torch.nan for value in row] for row in read]
    unscored = {n: str(row[0]) for n, row in enumerate(read) if all(isinstance(value, str) for value in row)}
    return torch.tensor(numbers).reshape(values_BF.shape), unscored


def distinct(names: Sequence[str]) -> list[str]:
    """The names of reward functions, two of which may be called the same."""
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
    count: dict[str, int] = {}
    out = []
    for name in names:
        count[name] = count.get(name, 0) + 1
        out.append(f"{name}.{count[name]}" if seen[name] > 1 else name)
    return out
