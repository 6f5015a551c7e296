"""Best-of-n: sample n answers to a prompt, score them, return the one that the reward likes best.

prompts -> policy, n times each -> ensemble, or a reward that is given -> aggregate -> the best of each prompt

Shapes: K member, N answers to one prompt.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from holdfast.errors import HoldfastError
from holdfast.grammar.grammars import Grammars, each_grammar
from holdfast.models.codec import Codec
from holdfast.models.policy import Policy
from holdfast.models.prompt import Prompt, plain_text
from holdfast.reward.aggregate import Aggregation, aggregate
from holdfast.reward.ensemble import Tokens
from holdfast.reward.given import GivenReward
from holdfast.rollout.choice import Sampling
from holdfast.rollout.sampler import sample
from holdfast.track.progress import Progress, Silent

# Answers that are sampled and scored together.
AT_ONCE = 2048


@dataclass(frozen=True)
class Candidates:
    """All n answers to one prompt, with every member's standardised score of each."""

    prompt: Prompt
    tokens: list[list[int]]
    finished: list[bool]
    members_KN: Tensor


@dataclass(frozen=True)
class Best:
    """The answer that won, its score, and what the n answers scored on average."""

    prompt: Prompt
    text: str
    tokens: list[int]
    finished: bool
    score: float
    members: tuple[float, ...]
    mean_score: float
    n: int


class AnswerScores(Protocol):
    """Whatever scores answers: an ensemble, or a reward that is given."""

    def scores(self, prompts: Tokens, responses: Tokens) -> Tensor:
        """scores_KB of each opinion; NaN where it has none."""
        ...


@dataclass
class BestOfN:
    """Policy and reward with how answers are drawn and how the members' opinions become one."""

    policy: Policy
    ensemble: AnswerScores
    codec: Codec
    sampling: Sampling
    aggregation: Aggregation = "uncertainty"
    grammars: Grammars | None = None

    def answers(
        self, prompts: Sequence[Prompt], n: int, rng: torch.Generator, progress: Progress | None = None
    ) -> list[Best]:
        """The best of n answers to each prompt."""
        progress = progress or Silent()
        progress.begin("best of n", len(prompts))
        best = []
        for candidates in self.candidates(prompts, n, rng):
            best.append(self.pick(candidates))
            progress.advance(score=best[-1].score)
        return best

    def candidates(self, prompts: Sequence[Prompt], n: int, rng: torch.Generator) -> Iterator[Candidates]:
        """All answers with their scores, prompt by prompt."""
        if n < 1:
            raise ValueError(f"The best of {n} answers is not defined; n is at least 1.")
        at_once = max(1, AT_ONCE // n)
        for start in range(0, len(prompts), at_once):
            asked = prompts[start : start + at_once]
            ids = [self.codec.encode_prompt(prompt) for prompt in asked for _ in range(n)]
            ends = self.codec.eos_id, self.codec.pad_id
            rollout = sample(self.policy, ids, self.sampling, *ends, rng, each_grammar(self.grammars, ids))
            scores_KB = self._scores(rollout.prompts, rollout.responses)
            for i, prompt in enumerate(asked):
                rows = slice(i * n, (i + 1) * n)
                yield Candidates(prompt, rollout.responses[rows], rollout.finished[rows], scores_KB[:, rows])

    def pick(self, candidates: Candidates) -> Best:
        """The candidate with the highest aggregate; of equals, the first. One without a score is never the best."""
        scores_N = aggregate(candidates.members_KN, self.aggregation)
        known_N = scores_N[~scores_N.isnan()]
        if not len(known_N):
            raise HoldfastError(
                f"None of the {len(scores_N)} answers to the prompt {plain_text(candidates.prompt)[:60]!r} could be "
                "scored: mend the reward, or look at the columns of its row."
            )
        best = int(scores_N.nan_to_num(-math.inf).argmax())
        return Best(
            prompt=candidates.prompt,
            text=self.codec.decode(candidates.tokens[best]),
            tokens=candidates.tokens[best],
            finished=candidates.finished[best],
            score=float(scores_N[best]),
            members=tuple(candidates.members_KN[:, best].tolist()),
            mean_score=float(known_N.mean()),
            n=len(candidates.tokens),
        )

    def _scores(self, prompts: list[list[int]], responses: list[list[int]]) -> Tensor:
        """scores_KB; an answer that comes again to the same prompt is scored once.

        A reward that is given sees to that itself, and may have to compare answers that stand side by side.
        """
        if isinstance(self.ensemble, GivenReward):
            return self.ensemble.scores(prompts, responses)
        keys = [(tuple(p), tuple(r)) for p, r in zip(prompts, responses, strict=True)]
        places = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        scores_KU = self.ensemble.scores([p for p, _ in places], [r for _, r in places])
        return scores_KU[:, [places[key] for key in keys]]
