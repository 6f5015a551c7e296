"""The bar of a planned run keeps the false-alarm probability, and finds a hack sooner than the one for any plan."""

from __future__ import annotations

import random

import pytest
import torch

from holdfast.guard.alarm import OPPONENTS, AlarmTest
from holdfast.guard.claims import Granted
from holdfast.guard.threshold import LONGEST_PLAN, planned_bar

ROUNDS, PAIRS, MOST = 6, 16, 48


def won(rng: random.Random, rate: float, pairs: int) -> int:
    return sum(rng.random() < rate for _ in range(pairs))


def alarmed(rng: random.Random, bar: float, rates: list[float]) -> int | None:
    """The round in which a run of this win rate by round is stopped, topping up where the first pairs are lost."""
    test = AlarmTest(0.05, len(rates), bar)
    for n, rate in enumerate(rates, start=1):
        reference, anchor, pointed = (won(rng, rate, PAIRS) for _ in range(3))
        asked = PAIRS
        if min(anchor, pointed) < PAIRS / 2:
            anchor, pointed = (wins + won(rng, rate, MOST - PAIRS) for wins in (anchor, pointed))
            asked = MOST
        test.record(n, "reference", Granted(reference, PAIRS - reference))
        test.record(n, "anchor", Granted(anchor, asked - anchor))
        test.record(n, "pointed", Granted(pointed, asked - pointed))
        if test.evidence().alarmed:
            return n
    return None


def test_runs_in_which_nothing_is_wrong_are_stopped_as_seldom_as_promised() -> None:
    rng, bar = random.Random(7), planned_bar(0.05, ROUNDS, PAIRS, MOST)
    stopped = sum(alarmed(rng, bar, [0.5] * ROUNDS) is not None for _ in range(1500))
    # 5% of 1500 is 75, with a standard error of 8.
    assert stopped <= 75 + 2.5 * 8.4


def test_a_better_policy_is_hardly_ever_stopped() -> None:
    rng, bar = random.Random(8), planned_bar(0.05, ROUNDS, PAIRS, MOST)
    assert sum(alarmed(rng, bar, [0.6] * ROUNDS) is not None for _ in range(500)) <= 5


def test_a_hack_is_found_sooner_than_with_the_bar_for_any_plan() -> None:
    rates = [0.6, 0.6, 0.35, 0.35, 0.35, 0.35]
    found = {}
    for name, bar in {"planned": planned_bar(0.05, ROUNDS, PAIRS, MOST), "any plan": 20.0}.items():
        rng = random.Random(9)
        found[name] = sum((alarmed(rng, bar, rates) or 99) in (3, 4) for _ in range(500)) / 500
    assert found["planned"] > found["any plan"] + 0.1


@pytest.mark.parametrize(("rounds", "pairs"), [(LONGEST_PLAN + 1, 16), (6, 0)])
def test_without_a_plan_that_can_be_played_it_is_the_bar_for_any_plan(rounds: int, pairs: int) -> None:
    assert planned_bar(0.05, rounds, pairs, 48) == 20.0


def test_it_is_the_same_each_time() -> None:
    planned_bar.cache_clear()
    once = planned_bar(0.1, 3, 8, 16)
    planned_bar.cache_clear()
    assert planned_bar(0.1, 3, 8, 16) == once


def test_the_bar_holds_where_a_small_budget_spreads_thin() -> None:
    """Nobody has a preference, and four pairs of a kind are asked about where the plan had 24 and up to 216."""
    bar, rng, alarms = planned_bar(0.05, 8, 24, 216), torch.Generator().manual_seed(1), 0
    wins = torch.binomial(torch.full((600, 8, 3), 4.0), torch.full((600, 8, 3), 0.5), generator=rng).tolist()
    for run in wins:
        test, over = AlarmTest(0.05, 8, bar), False
        for round, won in enumerate(run, start=1):
            for against, count in zip(OPPONENTS, won, strict=True):
                test.record(round, against, Granted(count, 4 - count, 0.5, ensemble=1))
            over = over or test.evidence().alarmed
        alarms += over
    assert alarms / len(wins) <= 0.05
