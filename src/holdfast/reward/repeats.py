"""Asking again: easy comparisons that people have answered before, to see whether they still answer as they did.

Labels of a round cannot vouch for themselves: where they differ from the ensemble, either may be wrong. So a few
comparisons are asked a second time, those on which a member that never learnt from the label is surest and people sided
with it. Honest people answer nearly all of them as before; of flipped labels the share flipped comes out otherwise.

They never train: they say nothing new about answers, only about who answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from holdfast.preferences.comparison import Comparison
from holdfast.preferences.pair import Pair

_AGAIN = "/again-r"

# So many are looked at for each that is asked.
CANDIDATES = 6


@dataclass(frozen=True)
class Repeats:
    """How many comparisons were asked again and answered as before: lately, and in rounds whose labels are in use."""

    same: float = 0.0
    asked: int = 0
    same_before: float = 0.0
    asked_before: int = 0


def repeat_of(comparison: Comparison, round: int, key: str = "") -> Comparison:
    """The same question, to be asked again in a round of the run with this key, whichever run asked it first."""
    run = f"-{key}" if key and not asked_by(comparison.id, key) else ""
    return replace(comparison, id=f"{comparison.id}{_AGAIN}{round:04d}{run}", round=round)


def is_repeat(comparison_id: str) -> bool:
    """Whether a comparison is one that was asked again."""
    return _AGAIN in comparison_id


def original_of(comparison_id: str) -> str:
    """The id of the comparison that was asked first."""
    return comparison_id.rpartition(_AGAIN)[0]


def asked_by(comparison_id: str, key: str) -> bool:
    """Whether the run with this key asked it, as a comparison of its own or again."""
    first, again, told = comparison_id.rpartition(_AGAIN)
    other = told.partition("-")[2] if again else ""
    return key == (other or (first if again else comparison_id).rpartition("/")[0])


def surest(pairs: Sequence[Pair], margin_P: Tensor, count: int) -> list[str]:
    """Of the pairs on which people and the member sided alike, those on which the member was surest."""
    sure_P = [float(margin) * (2.0 * pair.share_a - 1.0) for margin, pair in zip(margin_P, pairs, strict=True)]
    alike = [i for i, sure in enumerate(sure_P) if sure > 0]
    return [pairs[i].key for i in sorted(alike, key=lambda i: -sure_P[i])[:count]]


def as_before(first: float, again: float) -> float:
    """1 for the same side, 0 for the other one, between them for a tie."""
    return again if first > 0.5 else 1.0 - again
