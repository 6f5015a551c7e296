"""A member that cannot be used: what is the matter with it, and what the rest of the ensemble does without it.

    raises, runs out of memory, or is silent for too long    found where it is asked
    gives every answer the same score, as the others do not  found in every batch, and when a version is standardised

It is left out from there on: aggregation, claims and spread are those of the other members. Its place stays, so that
the next version trains and tries it again. With fewer than two of several left nothing is scored any more: one opinion
is not an ensemble, and nobody would see where it goes wrong.

Shapes: K member, B answers.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from holdfast.errors import HoldfastError, first_line
from holdfast.track.memory import ran_out

FEWEST = 2
SAME_SCORE = "gives every answer the same score"

# In standard deviations of the reference's scores: below the one a member does not move, above the other it does.
STILL, MOVES = 1e-4, 1e-2
# Different answers of which a sound member cannot think the same.
DISTINCT = 4


@dataclass(frozen=True)
class MemberLeftOut:
    """A member that is left out from here on, and how many of how many are left."""

    member: int
    why: str
    version: int
    left: int
    members: int

    def __str__(self) -> str:
        return f"Reward member {self.member} is left out, since it {self.why}; {self.left} of {self.members} are left."


class MembersFailed(HoldfastError):
    """Members that gave no scores, by their place among those asked; every process of a run meets it at once."""

    met_by_all = True

    def __init__(self, reasons: Mapping[int, str], error: Exception | None) -> None:
        super().__init__("; ".join(f"a reward member {why}" for why in reasons.values()))
        self.reasons, self.error = dict(reasons), error


def reason_of(error: Exception, seconds: float) -> str:
    """What a member did instead of giving scores, after the words "the member"."""
    if isinstance(error, TimeoutError):
        return f"gave no scores for {seconds:g} seconds"
    return "ran out of memory" if ran_out(error) else f"raised {type(error).__name__}: {first_line(error)[:-1]}"


def still_members(
    raw_KB: Tensor, unit_K: Tensor, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]
) -> list[int]:
    """The places of members whose scores do not move over answers that differ, while most of the others' do."""
    moves_K = raw_KB.std(1, unbiased=False) / unit_K
    still = (moves_K < STILL).nonzero()[:, 0].tolist()
    if not still or 2 * len(still) >= len(raw_KB) or float(moves_K.median()) < MOVES:
        return []
    different = {(tuple(prompt), tuple(response)) for prompt, response in zip(prompts, responses, strict=True)}
    return still if len(different) >= DISTINCT else []


def too_few(degraded: Mapping[int, str], members: int) -> HoldfastError:
    """Why nothing is scored any more, and the ways on."""
    why = "; ".join(f"member {k} {why}" for k, why in sorted(degraded.items()))
    left = members - len(degraded)
    return HoldfastError(
        f"Of {members} reward members {left or 'none'} {'is' if left == 1 else 'are'} left ({why}), and at least "
        f"{min(FEWEST, members)} {'is' if members == 1 else 'are'} needed: a run that is resumed asks them again; take "
        "an earlier version with `holdfast rollback RUN --reward N`, or train the ensemble with more labels, more "
        "epochs or a larger reward.lr."
    )


def warn(left_out: MemberLeftOut) -> None:
    """Say so where there is no run to write it down."""
    warnings.warn(str(left_out), RuntimeWarning, stacklevel=2)
