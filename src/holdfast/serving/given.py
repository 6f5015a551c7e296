"""A reward that is given as a service: texts go to its source as they come, and what it says goes back.

It has one version and no tokenizer, so nothing is known of the answers but their texts, and nobody watches them. What
could not be scored says so: in our own protocol an answer without a score has a reason, and a trainer's own, which
knows no such thing, is refused.

Shapes: B answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from holdfast.errors import HoldfastError
from holdfast.reward.scores import AdjustableSource, Asked, Scores
from holdfast.serving.encoder import AnswerToScore, after
from holdfast.serving.scorer import Pass, ScoredRequest
from holdfast.web.security import Refused

VERSION = 1


@dataclass(frozen=True, eq=False)
class GivenScorer:
    """Scores texts by a source."""

    source: AdjustableSource
    version: int = VERSION
    degraded: Mapping[int, str] = field(default_factory=dict)

    def tell_of(self, say: Callable[[str], None]) -> None:
        """There are no members that could be left out."""

    def answer(self, requests: Sequence[Sequence[AnswerToScore]]) -> Pass:
        """All requests in one go, or one by one where the source compares the answers of a request."""
        outcomes: list[ScoredRequest | Refused | None] = [_refusal(request) for request in requests]
        fine = [place for place, outcome in enumerate(outcomes) if outcome is None]
        passes = [[place] for place in fine] if self.source.compares else [fine] if fine else []
        for together in passes:
            asked = [one for place in together for one in requests[place]]
            scores = self.source.score(_asked(asked, len(asked) if self.source.compares else 1))
            at = 0
            for place in together:
                outcomes[place] = _of_request(scores, at, len(requests[place]))
                at += len(requests[place])
        return Pass([outcome for outcome in outcomes if outcome is not None], [], [], None)


@dataclass(frozen=True)
class GivenVersions:
    """The one version of a reward that is given."""

    source: AdjustableSource

    def in_use(self) -> int:
        return VERSION

    def numbers(self) -> list[int]:
        return [VERSION]

    def load(self, number: int) -> GivenScorer:
        if number != VERSION:
            raise HoldfastError(f"A reward that is given has version {VERSION} alone; there is no version {number}.")
        return GivenScorer(self.source)


def _refusal(request: Sequence[AnswerToScore]) -> Refused | None:
    """Why a request cannot be asked."""
    try:
        for place, one in enumerate(request):
            _text_of(one, place)
    except Refused as refused:
        return refused
    return None


def _asked(answers: Sequence[AnswerToScore], group: int) -> Asked:
    texts = [_text_of(one, place) for place, one in enumerate(answers)]
    return Asked([one.prompt for one in answers], texts, [one.columns for one in answers], group=group)


def _text_of(one: AnswerToScore, place: int) -> str:
    """The answer's text; of one that is sent with its prompt, what follows that."""
    if not one.whole:
        text = one.text
    else:
        end = after(one.text, one.prompt) if isinstance(one.prompt, str) else None
        if end is None:
            raise Refused(422, f"The query of answer {place} does not begin with its prompt.")
        text = one.text[end:].lstrip()
    if not text.strip() and not one.may_be_empty:
        raise Refused(422, f"The text of answer {place} is empty, so there is nothing to score.")
    return text


def _of_request(scores: Scores, at: int, count: int) -> ScoredRequest:
    rows = slice(at, at + count)
    total_B = scores.total_B[rows]
    return ScoredRequest(
        VERSION,
        total_B.tolist(),
        [0.0] * count,
        total_B[None],
        torch.full((1, count), math.nan),
        {row - at: why for row, why in scores.unscored.items() if at <= row < at + count},
        {name: values_B[rows].tolist() for name, values_B in scores.components.items()},
    )
