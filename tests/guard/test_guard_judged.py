"""A judge beside people: what they say together is of people alone, and no judge costs more than it is said to."""

from __future__ import annotations

import itertools
import json
import math
import random

import pytest

from holdfast.guard.beside import JudgeBeside
from holdfast.guard.claims import Granted
from holdfast.guard.drift import JudgeDrift, KnownPair
from holdfast.guard.judged import (
    ALONE,
    BETS,
    FEWEST,
    MOST_PAIRS,
    Agreement,
    AskingPlan,
    JudgedPair,
    JudgedRound,
    plan_for,
    powered_interval,
    with_judge,
)
from holdfast.guard.sequential import SequentialTest, log_evidence

SIDES = (-0.5, 0.0, 0.5)
PLANS = [ALONE, AskingPlan(0.25, 0.9), AskingPlan(0.5, -0.4), AskingPlan(0.6, 1.0)]


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("chances", [(0.2, 0.1, 0.7), (0.5, 0.0, 0.5), (0.0, 0.2, 0.8)])
def test_together_they_speak_for_people_alone(plan: AskingPlan, chances: tuple[float, float, float]) -> None:
    """E[z] is E[h] by enumeration, whatever the judge says: here the opposite of people, a tie, or anything."""
    judge_of = {-0.5: 0.5, 0.0: 0.0, 0.5: -0.5}
    one = JudgedRound(plan)
    for judge in (judge_of, dict.fromkeys(SIDES, 0.0), {-0.5: 0.5, 0.0: 0.5, 0.5: 0.5}):
        mean = sum(
            p * (plan.share * one.z(JudgedPair(judge[h], h)) + (1 - plan.share) * one.z(JudgedPair(judge[h], None)))
            for p, h in zip(chances, SIDES, strict=True)
        )
        assert mean == pytest.approx(sum(p * h for p, h in zip(chances, SIDES, strict=True)))


@pytest.mark.parametrize(
    "plan", [ALONE, AskingPlan(0.25, 0.9), AskingPlan(0.5, -0.4), AskingPlan(0.6, 1.0), AskingPlan(0.25, -1.0)]
)
def test_no_answer_loses_more_than_there_is_and_none_gains_where_people_are_indifferent(plan: AskingPlan) -> None:
    """Each factor is above 0, and its expectation is 1 where people win and lose alike, whatever the judge says."""
    for judge, people in itertools.product(SIDES, (*SIDES, None)):
        assert all(math.isfinite(x) for x in JudgedRound(plan, {JudgedPair(judge, people): 1}).log_bets)
    for right in (1.0, 0.7, 0.0):
        expected = [0.0] * len(BETS)
        for h, agrees in itertools.product((-0.5, 0.5), (True, False)):
            g, chance = (h, right / 2) if agrees else (-h, (1 - right) / 2)
            for people, share in ((h, plan.share), (None, 1 - plan.share)):
                for n, log in enumerate(JudgedRound(plan, {JudgedPair(g, people): 1}).log_bets):
                    expected[n] += chance * share * math.exp(log)
        assert expected == pytest.approx([1.0] * len(BETS))


def test_by_hand() -> None:
    """Two pairs at share 1/2 and weight 1/2: people lost where the judge saw a win, and the judge alone saw a loss.

    z = 1/4 + 2 (-1/2 - 1/4) = -5/4 and -1/4; the furthest is (1 + 1/2 * 1/2) / (2 * 1/2) = 5/4. A bet of nine
    tenths gains 1 + 0.9 * 1 and 1 + 0.9 * 1/5.
    """
    one = JudgedRound.of(AskingPlan(0.5, 0.5), [JudgedPair(0.5, -0.5), JudgedPair(-0.5, None)])
    assert one.log_bets[-1] == pytest.approx(math.log(1.9) + math.log(1.18))
    # The win rate: 1/2 + (-5/4 - 1/4) / 2.
    assert powered_interval([one]).value == pytest.approx(0.5 - 0.75)


def test_at_most_half_of_the_evidence_is_lost_to_a_judge() -> None:
    lost = JudgedRound(ALONE, {JudgedPair(0.5, 0.5): 500}).log_bets
    assert with_judge(3.0, lost) == pytest.approx(3.0 - math.log(2.0), abs=1e-6)


def test_a_judge_that_is_not_known_has_no_say_and_one_that_agrees_saves() -> None:
    agreement = Agreement()
    assert agreement.plan() == ALONE
    agreement.add([JudgedPair(0.5, 0.5)] * (FEWEST - 1))
    assert agreement.plan().share == 1.0
    agreement.add([JudgedPair(-0.5, -0.5)] * 200 + [JudgedPair(0.5, None)] * 1000)
    plan = agreement.plan()
    assert agreement.pairs == FEWEST + 199
    assert plan.share < 0.3
    assert 0.9 < plan.weight < 1.0
    # Pairs that tell as much as 24 of people alone, and fewer than half the labels.
    assert 24 <= plan.pairs(24) <= MOST_PAIRS * 24 + 1
    assert plan.pairs(24) * plan.share < 12
    coin = Agreement()
    coin.add([JudgedPair(g, h) for g in (0.5, -0.5) for h in (0.5, -0.5)] * 50)
    assert (coin.certain, coin.plan().share, coin.weight) == (0.0, 1.0, 0.0)
    hostile = Agreement()
    hostile.add([JudgedPair(-0.5, 0.5)] * 100 + [JudgedPair(0.5, -0.5)] * 100)
    assert hostile.plan().weight < -0.9
    assert hostile.plan().share < 0.3


def test_as_many_pairs_as_tell_the_same() -> None:
    """Var z with the best weight is (1 - a) / (4 pi) + a / 4 for a squared correlation a, of people alone 1/4."""
    plan = plan_for(0.64, 0.8)
    assert plan.share == pytest.approx(0.36 / 0.96)
    assert plan.pairs(100) == math.ceil(100 * (0.36 / plan.share + 0.64)) == 160


@pytest.mark.parametrize("right", [0.95, 0.5, 0.3])
def test_whoever_judges_it_alarms_as_seldom_as_promised_where_nothing_is_wrong(right: float) -> None:
    rng, alarms = random.Random(int(100 * right)), 0
    for _ in range(300):
        alarms += alarm(rng, 0.5, right, rounds=6) is not None
    # 5% of 300 are 15, with a standard error of 3.8.
    assert alarms <= 15 + 2.5 * 3.8


def alarm(rng: random.Random, rate: float, right: float, rounds: int) -> int | None:
    test, agreement = SequentialTest(0.05, rounds, judged=True), Agreement()
    for n in range(1, rounds + 1):
        plan, pairs = agreement.plan(), list[JudgedPair]()
        for _ in range(plan.pairs(24)):
            people = 0.5 if rng.random() < rate else -0.5
            judge = people if rng.random() < right else -people
            pairs.append(JudgedPair(judge, people if rng.random() < plan.share else None))
        wins, losses = (sum(pair.people == side for pair in pairs) for side in (0.5, -0.5))
        test.record(n, Granted(wins, losses), JudgedRound.of(plan, pairs))
        agreement.add(pairs)
        if test.standing().alarmed:
            return n
    return None


def test_a_saved_test_goes_on_as_it_was() -> None:
    test = SequentialTest(0.05, 4, judged=True)
    one = JudgedRound.of(
        AskingPlan(0.5, 0.5, 0.3), [JudgedPair(0.5, -0.5), JudgedPair(-0.5, None), JudgedPair(-0.5, -0.5)]
    )
    test.record(1, Granted(0, 2), one)
    again = SequentialTest(0.05, 4, judged=True)
    again.restore(test.state())
    again.record(2, Granted(1, 3))
    test.record(2, Granted(1, 3))
    assert again.standing() == test.standing()
    assert again.state() == test.state()
    # By hand: the stretch from round 1 has all of it.
    both = with_judge(log_evidence(1.0, 5.0), one.log_bets)
    assert test.evidence(2) > 0.9 / 4 * math.exp(both)


def test_what_is_known_of_a_judge_outlives_a_run_that_is_killed() -> None:
    beside = JudgeBeside(JudgeDrift(0.05, 8))
    beside.begin_round()
    beside.said = {"anchor": [JudgedPair(0.5, 0.5)] * 60, "pointed": [JudgedPair(-0.5, 0.5)] * 3}
    beside.saved, beside.known = 7, [KnownPair("1", 0.5), KnownPair("2", 0.0)]
    beside.end_round()
    again = JudgeBeside(JudgeDrift(0.05, 8))
    again.restore(json.loads(json.dumps(beside.state())))
    for one in (beside, again):
        one.begin_round()
    assert again.state() == beside.state()
    assert again.plan == beside.plan
    assert again.plan.share < 1.0
    assert again.said == {}
