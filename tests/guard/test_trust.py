"""Which labellers' answers are found to say nothing, and which are not."""

from __future__ import annotations

import pytest
import torch

from holdfast.guard.audit import AuditPair
from holdfast.guard.trust import AskedAgain, Habits, findings_of, habits_of, trust_in
from holdfast.preferences.comparison import Choice, Label

NOBODY_BEFORE: dict[str, Habits] = {}


def pairs(choices: str, labeller: str = "anna", alike: bool = False) -> list[AuditPair]:
    """A pair for each letter: a, b or t for a tie."""
    named = {"a": Choice.A, "b": Choice.B, "t": Choice.TIE}
    return [
        AuditPair(str(n), "anchor", 0.5, 0.5, (Label(str(n), labeller, named[choice]),), alike)
        for n, choice in enumerate(choices)
    ]


def test_answers_are_counted_by_labeller_and_pairs_that_read_the_same_are_not() -> None:
    given = [*pairs("aabt"), *pairs("bb", "judge:m"), *pairs("ttt", alike=True)]
    assert habits_of(given) == {"anna": Habits(4, 1, 2), "judge:m": Habits(2, 0, 0)}


@pytest.mark.parametrize(
    ("choices", "found"),
    [
        ("ab" * 24, ()),
        # 0.75^18 = 0.0056 may be chance, 0.75^19 = 0.0042 is not.
        ("t" * 18, ()),
        ("t" * 19, ("answered 19 of 19 pairs with a tie",)),
        ("t" * 36 + "ab" * 6, ()),  # three quarters
        # 0.6^10 = 0.006, 0.6^11 = 0.0036.
        ("a" * 10, ()),
        ("a" * 11, ("chose the first answer in 11 of 11 pairs, whichever it was",)),
        ("b" * 40 + "a" * 2, ("chose the second answer in 40 of 42 pairs, whichever it was",)),
        ("a" * 30 + "b" * 20, ()),  # a habit
    ],
)
def test_ties_and_sides_beyond_habit_and_chance_are_found(choices: str, found: tuple[str, ...]) -> None:
    assert trust_in(pairs(choices), NOBODY_BEFORE, {}).findings.get("anna", ()) == found


@pytest.mark.parametrize(
    ("again", "found"),
    [
        (AskedAgain(45, 60), ()),  # a quarter of them errs
        (AskedAgain(30, 60), ()),  # up to 62%: too few to tell from it
        (AskedAgain(48, 100), ("answered 48 of 100 comparisons that were asked again as before",)),
        (AskedAgain(2, 12), ("answered 2 of 12 comparisons that were asked again as before",)),
        (AskedAgain(0, 0), ()),
    ],
)
def test_who_contradicts_himself_is_found(again: AskedAgain, found: tuple[str, ...]) -> None:
    assert findings_of(Habits(10, 0, 5), Habits(10, 0, 5), again) == found


def test_a_small_round_is_seen_beside_those_before_it() -> None:
    assert not trust_in(pairs("t" * 6), NOBODY_BEFORE, {}).findings
    trust = trust_in(pairs("t" * 6), {"anna": Habits(14, 14, 0)}, {})
    assert trust.findings == {"anna": ("answered 20 of 20 pairs with a tie",)}
    # One who has become bad is not covered by a good past.
    assert trust_in(pairs("t" * 19), {"anna": Habits(400, 20, 190)}, {}).unreliable


def test_a_round_is_unreliable_where_most_answers_are_of_such_labellers() -> None:
    bad = pairs("a" * 30, "judge:m")
    assert trust_in([*bad, *pairs("ab" * 14)], NOBODY_BEFORE, {}).unreliable
    assert not trust_in([*bad, *pairs("ab" * 15)], NOBODY_BEFORE, {}).unreliable
    both = [
        AuditPair(str(n), "anchor", 0.5, 0.5, (Label(str(n), "judge:m", Choice.A), Label(str(n), "anna", choice)))
        for n, choice in enumerate([Choice.A, Choice.B] * 20)
    ]
    assert not trust_in(both, NOBODY_BEFORE, {}).unreliable, "somebody else has answered each of them too"


def test_honest_labellers_are_hardly_ever_found() -> None:
    """A fifth of ties, 55% for a side, over eight rounds of 72 pairs: one of 800 rounds."""
    rng, found = torch.Generator().manual_seed(0), 0
    for _ in range(100):
        before: dict[str, Habits] = {}
        for _ in range(8):
            drawn = torch.rand(72, generator=rng).tolist()
            given = pairs("".join("t" if u < 0.2 else "a" if u < 0.2 + 0.8 * 0.55 else "b" for u in drawn))
            found += bool(trust_in(given, before, {}).findings)
            before = {"anna": before.get("anna", Habits()) + habits_of(given)["anna"]}
    assert found <= 1
