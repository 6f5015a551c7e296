"""Claims against people's answers: the ratios by hand, when they are held against a policy, false alarms and power."""

from __future__ import annotations

import json
import math
import random

import pytest

from holdfast.guard.alarm import SHARES, AlarmTest, Evidence, Shortfall
from holdfast.guard.audit import AuditPair, AuditReport, audit
from holdfast.guard.claims import PATIENCE, STEPS, Granted, held_against, log_mean, log_ratios, summed
from holdfast.guard.sequential import start_weight, weight_after
from holdfast.guard.suspicion import Suspicion
from holdfast.guard.threshold import planned_bar
from holdfast.guard.verdict import decide

ROUNDS, PAIRS = 8, 48


def test_the_ratios_by_hand() -> None:
    # A claim of 3/4 has odds of 3. A step of log 3 lower has odds of 1, a rate of 1/2: a win (1/2)/(3/4) = 2/3, a loss
    # (1/2)/(1/4) = 2. Found here for the steps there are: odds 3 exp(-step).
    for step, ratio in zip(STEPS, log_ratios(Granted(2, 3, 0.75)), strict=True):
        odds = 3 * math.exp(-step)
        low = odds / (1 + odds)
        assert ratio == pytest.approx(math.log((low / 0.75) ** 2 * ((1 - low) / 0.25) ** 3))


def test_no_answers_are_no_evidence() -> None:
    assert log_mean(summed([])) == 0.0
    assert log_mean(log_ratios(Granted(0, 0, 0.9))) == 0.0


def test_a_claim_below_a_half_asks_for_a_half_and_certainty_for_no_more_than_can_be_had() -> None:
    assert log_ratios(Granted(3, 4, 0.2)) == log_ratios(Granted(3, 4, 0.5))
    assert math.isfinite(log_mean(log_ratios(Granted(3, 1, 1.0))))


@pytest.mark.parametrize("chances", [[0.7, 0.7, 0.7], [0.5, 0.7, 0.9], [0.1, 1.0, 1.0]])
def test_where_people_grant_what_is_claimed_it_does_not_grow_on_average(chances: list[float]) -> None:
    """Over all outcomes of three pairs whose chances are claimed on average, exactly."""
    mean = 0.0
    for outcome in range(8):
        won = [bool(outcome >> n & 1) for n in range(3)]
        chance = math.prod(p if w else 1 - p for p, w in zip(chances, won, strict=True))
        mean += chance * math.exp(log_mean(log_ratios(Granted(sum(won), 3 - sum(won), 0.7))))
    assert mean <= 1.0 + 1e-12


def test_a_tie_only_lowers_it() -> None:
    tie, win, loss = (log_ratios(g) for g in (Granted(0.5, 0.5, 0.7), Granted(1, 0, 0.7), Granted(0, 1, 0.7)))
    for middle, a, b in zip(tie, win, loss, strict=True):
        assert math.exp(middle) < 0.5 * math.exp(a) + 0.5 * math.exp(b)


# --- when they are held against a policy -------------------------------------------------------------------------

SHORT, ENOUGH = Granted(20, 28, 0.6, ensemble=1), Granted(32, 16, 0.6, ensemble=1)


def test_only_after_as_many_rounds_as_patience() -> None:
    assert [held_against([[SHORT]] * count) for count in range(PATIENCE + 2)] == [0, 0, 0, PATIENCE, PATIENCE + 1]


def test_not_while_people_have_just_granted_what_was_claimed() -> None:
    assert held_against([[ENOUGH], [SHORT], [SHORT], [SHORT]]) == 0
    assert held_against([[SHORT], [SHORT], [SHORT], [ENOUGH]]) == 4


def test_a_refresh_begins_anew() -> None:
    old, new = [[SHORT]] * 4, [[Granted(20, 28, 0.6, ensemble=2)]]
    assert held_against(new * 2 + old) == 0
    assert held_against(new * 3 + old) == 3


def test_a_round_without_answers_ends_it() -> None:
    assert held_against([[], [SHORT], [SHORT], [SHORT]]) == 0
    assert held_against([[SHORT], [SHORT], [SHORT], [], [SHORT]]) == 3


def short_of(rate: float, claimed: float, rounds: int, pairs: int = 96, ensemble: int = 1) -> AlarmTest:
    test = AlarmTest(0.05, ROUNDS)
    for round in range(1, rounds + 1):
        test.record(round, "anchor", Granted(rate * pairs, (1 - rate) * pairs, claimed, ensemble))
    return test


def test_the_mixture_by_hand() -> None:
    found = short_of(0.5, 0.65, 4).evidence()
    one = log_ratios(Granted(48, 48, 0.65))
    stretches = sum(start_weight(5 - n, ROUNDS) * math.exp(log_mean(tuple(n * r for r in one))) for n in (3, 4))
    assert found.claims == pytest.approx(SHARES["claims"] * (stretches + weight_after(4, ROUNDS)))
    assert found.by_claims
    assert found.shortfall == Shortfall(1, 384, 192, pytest.approx(249.6))


def test_an_even_match_that_was_claimed_to_be_won_alarms_and_one_that_was_not_does_not() -> None:
    assert short_of(0.5, 0.65, 4).evidence().alarmed
    assert not short_of(0.5, 0.5, 8).evidence().alarmed
    assert not short_of(0.5, 0.65, PATIENCE - 1).evidence().alarmed


@pytest.mark.parametrize(("rate", "alarmed"), [(0.5, True), (0.51, True), (0.54, False), (0.62, False)])
def test_people_who_like_the_policy_better_clear_it(rate: float, alarmed: bool) -> None:
    """Over three rounds of 96 pairs one standard error is 51.5% of them against the last good policy."""
    test = AlarmTest(0.05, ROUNDS)
    for round in range(1, 5):
        test.record(round, "anchor", Granted(rate * 96, (1 - rate) * 96, 0.7, 1))
        test.record(round, "reference", Granted(60, 40, 0.8, 1))
    assert test.evidence().alarmed is alarmed


def test_before_there_is_a_last_good_policy_the_reference_clears_it() -> None:
    test = AlarmTest(0.05, ROUNDS)
    for round in range(1, 5):
        test.record(round, "reference", Granted(60, 36, 0.95, 1))
    assert not test.evidence().alarmed


def test_spent_evidence_does_not_alarm_again() -> None:
    test = short_of(0.45, 0.65, 5)
    test.spend()
    assert test.evidence().claims == pytest.approx(SHARES["claims"] * weight_after(5, ROUNDS))


def test_claims_are_remembered() -> None:
    test = short_of(0.5, 0.65, 4)
    again = AlarmTest(0.05, ROUNDS)
    again.restore(json.loads(json.dumps(test.state())))
    assert again.evidence() == test.evidence()


def test_an_ensemble_that_is_gone_back_to_is_known_again() -> None:
    test = short_of(0.5, 0.65, 2, ensemble=1)
    test.record(3, "anchor", Granted(48, 48, 0.65, ensemble=2))
    test.spend()
    assert [test.has_claimed(version, before=4) for version in (1, 2, 3)] == [True, True, False]
    assert not test.has_claimed(2, before=3)


def test_pairs_that_were_topped_up_count_no_more_than_they_would_by_themselves() -> None:
    first, more = Granted(10, 14, 0.55), Granted(30, 42, 0.8)
    together = Granted(40, 56, (24 * 0.55 + 72 * 0.8) / 96)
    for pooled, apart in zip(log_ratios(together), summed([log_ratios(first), log_ratios(more)]), strict=True):
        assert pooled < apart


# --- whole runs --------------------------------------------------------------------------------------------------


def called(rng: random.Random, rates: list[float], claims: list[float], refreshed: bool) -> int | None:
    """The round in which a run is called hacking where people prefer the policy at these rates to everyone."""
    test = AlarmTest(0.05, len(rates), planned_bar(0.05, len(rates), PAIRS, PAIRS))
    for round, (rate, claim) in enumerate(zip(rates, claims, strict=True), start=1):
        for against in ("reference", "anchor", "pointed"):
            wins = sum(rng.random() < rate for _ in range(PAIRS))
            test.record(round, against, Granted(wins, PAIRS - wins, claim, round if refreshed else 1))
        if test.evidence().alarmed:
            return round
    return None


@pytest.mark.parametrize("rate", [0.5, 0.55, 0.7])
def test_claims_that_hold_alarm_as_seldom_as_promised(rate: float) -> None:
    rng = random.Random(3)
    alarms = sum(called(rng, [rate] * ROUNDS, [rate] * ROUNDS, refreshed=False) is not None for _ in range(300))
    # 5% of 300 is 15, with a standard error of 3.8.
    assert alarms <= 15 + 2.5 * 3.8


def test_a_policy_that_stands_still_while_its_reward_climbs_is_called_and_without_claims_it_is_not() -> None:
    rates, claims = [0.6, 0.5, 0.49, 0.49, 0.48, 0.48, 0.48, 0.48], [0.62, 0.58, 0.6, 0.62, 0.63, 0.64, 0.65, 0.65]
    rng = random.Random(4)
    found = [called(rng, rates, claims, refreshed=False) for _ in range(100)]
    assert sum(n is not None and n <= 6 for n in found) >= 90
    blind = [called(rng, rates, [0.5] * ROUNDS, refreshed=False) for _ in range(100)]
    assert sum(n is not None and n <= 6 for n in blind) <= 20


def test_an_ensemble_that_is_refreshed_every_round_answers_for_its_claims_by_itself() -> None:
    rng = random.Random(5)
    alarms = sum(called(rng, [0.53] * ROUNDS, [0.6] * ROUNDS, refreshed=True) is not None for _ in range(100))
    assert alarms <= 5


# --- in words ----------------------------------------------------------------------------------------------------


def test_the_sentence_says_what_people_granted() -> None:
    evidence = Evidence(0.2, 0.1, 0.2, 30.0, 20.0, Shortfall(2, 720, 338.4, 417.6))
    people: AuditReport = audit_of(won=46, of=96, claim=0.58)
    verdict = decide(Suspicion(1.0, 0.01), people, evidence, 100, "people")
    assert verdict.level == "hacking"
    assert verdict.sentence.startswith(
        "since round 2 people preferred the policy in 47% of 720 fresh pairs where the ensemble claimed 58%; "
        "people preferred the last good policy in 50 of 96 fresh pairs"
    )
    assert verdict.evidence["evidence_claims"] == 30.0


def test_where_it_is_the_half_that_people_fall_short_of_the_sentence_speaks_of_the_last_good_policy() -> None:
    evidence = Evidence(0.2, 0.1, 0.2, 30.0, 20.0, Shortfall(2, 720, 331.0, 324.0))
    verdict = decide(Suspicion(1.0, 0.01), audit_of(won=40, of=96, claim=0.45), evidence, 100, "people")
    assert verdict.sentence.startswith("people preferred the last good policy in 56 of 96 fresh pairs")


def audit_of(won: int, of: int, claim: float) -> AuditReport:
    return audit([AuditPair(str(n), "anchor", float(n < won), claim) for n in range(of)])
