"""Which policy becomes the last good one."""

from __future__ import annotations

from typing import Any, cast

import pytest

from holdfast.config.schema import AuditConfig, GuardConfig
from holdfast.guard.audit import Against, AuditPair
from holdfast.guard.verdict import Level, Verdict
from holdfast.guarding import Good, Guarding

NOBODY = cast(Any, None)


def guarding(good_round: int) -> Guarding[Any]:
    good = Good("round-0002", good_round, 12) if good_round else Good()
    return Guarding(GuardConfig(), AuditConfig(), 0, NOBODY, NOBODY, NOBODY, NOBODY, NOBODY, good)


def answers(**wins: int) -> list[AuditPair]:
    """Ten pairs of each kind, so many of them won."""
    return [
        AuditPair(f"{against}-{n}", cast(Against, against), float(n < won), 0.5)
        for against, won in wins.items()
        for n in range(10)
    ]


@pytest.mark.parametrize(
    ("level", "pairs", "good"),
    [
        ("healthy", answers(reference=9, anchor=5, pointed=5), True),
        ("healthy", answers(reference=9, anchor=4, pointed=8), False),
        ("healthy", answers(reference=2, anchor=5, pointed=5), True),  # the reference is not what it goes back to
        ("watch", answers(anchor=6, pointed=6), True),
        ("hacking", answers(anchor=6, pointed=6), False),
        ("healthy", [], True),  # nobody was asked
        ("watch", [], False),
    ],
)
def test_the_last_good_policy_moves_on_where_people_like_the_new_one_as_well(
    level: Level, pairs: list[AuditPair], good: bool
) -> None:
    assert guarding(good_round=2).is_good(Verdict(level, "", {}), pairs) is good


def test_before_any_round_was_good_the_reference_is_the_last_good_one() -> None:
    liked = Verdict("healthy", "", {})
    assert guarding(good_round=0).is_good(liked, answers(reference=6, pointed=6))
    assert not guarding(good_round=0).is_good(liked, answers(reference=4, pointed=6))
