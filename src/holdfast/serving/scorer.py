"""One version of the ensemble, ready to score: it is never changed, so that a request has one version for all of it.

Shapes: K member, B answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from holdfast.errors import HoldfastError
from holdfast.guard.view import Known
from holdfast.reward.aggregate import Aggregation, aggregate, spread
from holdfast.reward.ensemble import Ensemble, Judgement, Tokens
from holdfast.serving.encoder import AnswerToScore, Encoder
from holdfast.web.security import Refused


@dataclass(frozen=True, eq=False)
class ScoredRequest:
    """What a version says of the answers of one request; `raw_KB` are Bradley-Terry log-odds, the rest standardised.

    Of a reward that is given scores are as it gave them, NaN where it gave none; `unscored` says why.
    """

    version: int
    scores: list[float]
    spreads: list[float]
    members_KB: Tensor
    raw_KB: Tensor
    unscored: Mapping[int, str] = field(default_factory=dict)
    components: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def given(self) -> bool:
        """Whether it is of a reward that is given."""
        return bool(self.raw_KB.isnan().all())

    def all_scores(self) -> list[float]:
        """The scores, for whom an answer has to have one."""
        if self.unscored:
            place, why = min(self.unscored.items())
            raise Refused(502, f"Answer {place} could not be scored: {why}.")
        return self.scores

    def members(self, place: int) -> list[float]:
        return [float(x) for x in self.members_KB[:, place]]

    def first_wins(self, one: int, other: int) -> float:
        """The claimed probability that people prefer the one: sigma(mean over members of the raw difference)."""
        if self.given:
            raise Refused(422, "This reward is a number and claims no preference; ask for scores.")
        return float(torch.sigmoid((self.raw_KB[:, one] - self.raw_KB[:, other]).mean()))


@dataclass(frozen=True, eq=False)
class Pass:
    """What one pass over several requests gave: an outcome for each, and what was scored for whoever watches."""

    outcomes: list[ScoredRequest | Refused]
    prompts: list[list[int]]
    responses: list[list[int]]
    judgement: Judgement | None


@dataclass(frozen=True, eq=False)
class Scorer:
    """A version with what it takes to read texts, to make one score of its members', and what it was trained on."""

    ensemble: Ensemble
    encoder: Encoder
    aggregation: Aggregation
    known: Known

    @property
    def version(self) -> int:
        return self.ensemble.version

    @property
    def degraded(self) -> Mapping[int, str]:
        """The members that are left out, and why."""
        return self.ensemble.degraded

    def tell_of(self, say: Callable[[str], None]) -> None:
        """Tell of members that are left out while it serves."""
        self.ensemble.tell = lambda left_out: say(str(left_out))

    def judge(self, prompts: Tokens, responses: Tokens) -> Judgement:
        return self.ensemble.judge(prompts, responses)

    def check(self) -> None:
        """Refuse a version that gives no numbers, before anybody depends on it."""
        end = self.encoder.codec.eos_id
        if not bool(torch.isfinite(self.judge([[end]], [[end]]).scores_KB).all()):
            raise HoldfastError(f"Version {self.version} gives scores that are not numbers; use another version.")

    def answer(self, requests: Sequence[Sequence[AnswerToScore]]) -> Pass:
        """Score several requests in one pass; one that cannot be scored is refused, and the others are not held up."""
        encoded: list[list[tuple[list[int], list[int]]] | Refused] = [self._encoded(request) for request in requests]
        fine = [rows for rows in encoded if not isinstance(rows, Refused)]
        prompts = [prompt for rows in fine for prompt, _ in rows]
        responses = [response for rows in fine for _, response in rows]
        judgement = self.judge(prompts, responses) if prompts else None
        outcomes: list[ScoredRequest | Refused] = []
        at = 0
        for rows in encoded:
            if isinstance(rows, Refused) or judgement is None:
                outcomes.append(rows if isinstance(rows, Refused) else Refused(422, "There is no answer to score."))
            else:
                outcomes.append(self._scored(judgement.scores_KB[:, at : at + len(rows)]))
                at += len(rows)
        return Pass(outcomes, prompts, responses, judgement)

    def _encoded(self, request: Sequence[AnswerToScore]) -> list[tuple[list[int], list[int]]] | Refused:
        try:
            return [self.encoder.encode(asked, place) for place, asked in enumerate(request)]
        except Refused as refused:
            return refused

    def _scored(self, members_KB: Tensor) -> ScoredRequest | Refused:
        scores_B = aggregate(members_KB, self.aggregation)
        scores = scores_B.tolist()
        bad = next((i for i, x in enumerate(scores) if not math.isfinite(x)), None)
        if bad is not None:
            return Refused(422, f"The ensemble's score of answer {bad} is not a number; use another version.")
        means_K, sds_K = self.ensemble.units()
        raw_KB = members_KB * sds_K[:, None] + means_K[:, None]
        return ScoredRequest(self.version, scores, spread(members_KB).tolist(), members_KB, raw_KB)
