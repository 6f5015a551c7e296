"""Turns, medians and ratios."""

from __future__ import annotations

from benchmarks.speed.measure import Spread, in_turns, ratios


def test_a_spread_is_a_median_with_quartiles() -> None:
    assert Spread.of([5.0, 1.0, 4.0, 2.0, 3.0]) == Spread(3.0, 2.0, 4.0, 5)
    assert Spread.of([7.0]) == Spread(7.0, 7.0, 7.0, 1)
    assert str(Spread(3.0, 2.0, 4.0, 5)) == "3 [2, 4]"


def test_ratios_are_taken_turn_by_turn() -> None:
    # The machine was three times as slow in the second turn, for both; every turn says twice as fast.
    assert ratios([2.0, 6.0, 2.0], [1.0, 3.0, 1.0]) == Spread(2.0, 2.0, 2.0, 3)


def test_sides_take_turns_and_warm_up_is_not_counted() -> None:
    calls: list[str] = []
    sides = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    ticks = iter(range(100))

    def clock(work: object) -> float:
        assert callable(work)
        work()
        return float(next(ticks))

    times = in_turns(sides, turns=2, clock=clock)
    assert calls == ["a", "b", "a", "b", "b", "a"]
    assert times == {"a": [0.0, 3.0], "b": [1.0, 2.0]}
