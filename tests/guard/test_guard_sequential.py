"""The evidence against numbers by hand and by numeric integration, its false alarms, and its power."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest
import torch

from holdfast.errors import HoldfastError
from holdfast.guard.alarm import SHARES, Against, AlarmTest
from holdfast.guard.claims import Granted
from holdfast.guard.sequential import SequentialTest, Standing, log_evidence, start_weight, weight_after

BAR = 20.0


def evidence_by_integration(wins: float, losses: float, cells: int = 20000) -> float:
    """The integral of 12 q (1-q) (2q)^w (2(1-q))^l over (0, 1/2) by Simpson's rule."""

    def at(q: float) -> float:
        return 12 * q * (1 - q) * (2 * q) ** wins * (2 * (1 - q)) ** losses

    width = 0.5 / cells
    inner = sum((4 if i % 2 else 2) * at(i * width) for i in range(1, cells))
    return width / 3 * (at(0.0) + inner + at(0.5))


# --- by hand ----------------------------------------------------------------------------------------------------


def test_small_cases_by_hand() -> None:
    # One loss: the integral of 24 q (1-q)^2 is 24 [q^2/2 - 2 q^3/3 + q^4/4] at 1/2 = 11/8.
    # One win: 24 [q^3/3 - q^4/4] at 1/2 = 5/8.
    assert math.exp(log_evidence(0, 1)) == pytest.approx(11 / 8)
    assert math.exp(log_evidence(1, 0)) == pytest.approx(5 / 8)
    # Two losses: 48 [q^2/2 - q^3 + 3 q^4/4 - q^5/5] at 1/2 = 1.95
    assert math.exp(log_evidence(0, 2)) == pytest.approx(1.95)
    assert math.exp(log_evidence(0, 0)) == pytest.approx(1.0)


@pytest.mark.parametrize(("wins", "losses"), [(0, 5), (5, 0), (2.5, 3.5), (14, 34), (30, 30), (40, 110), (200, 180)])
def test_the_closed_form_is_the_integral(wins: float, losses: float) -> None:
    assert math.exp(log_evidence(wins, losses)) == pytest.approx(evidence_by_integration(wins, losses), rel=1e-7)


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (3, 4), (10, 2)])
def test_the_next_pair_is_a_fair_game_at_one_half(wins: int, losses: int) -> None:
    """The martingale itself, and that ties only lower it."""
    now, won, lost = (math.exp(log_evidence(wins + i, losses + j)) for i, j in ((0, 0), (1, 0), (0, 1)))
    assert (won + lost) / 2 == pytest.approx(now)
    assert 0.6 * won + 0.4 * lost < now
    assert math.exp(log_evidence(wins + 0.5, losses + 0.5)) < now


def test_long_hacked_runs_stay_finite() -> None:
    test = AlarmTest(0.05, 8)
    test.record(1, "anchor", Granted(0, 5000))
    assert math.isfinite(test.evidence().value)
    assert test.evidence().alarmed


@pytest.mark.parametrize("rounds", [1, 8, 50])
def test_weights_of_all_starts_that_may_come_sum_to_one(rounds: int) -> None:
    for last in (1, rounds, 3 * rounds):
        begun = sum(start_weight(s, rounds) for s in range(1, last + 1))
        assert begun + weight_after(last, rounds) == pytest.approx(1.0)


def test_the_mixture_by_hand() -> None:
    test = AlarmTest(0.05, rounds=2)
    assert test.evidence().value == pytest.approx(1.0)
    test.record(1, "anchor", Granted(1, 0))
    test.record(2, "anchor", Granted(0, 2))
    # Starts in rounds 1 and 2 weigh 0.45 each, 0.1 is kept for later ones; the others' shares have no answers.
    from_first = math.exp(log_evidence(1, 2))
    assert test.evidence().anchor == pytest.approx(0.24 * (0.45 * from_first + 0.45 * 1.95 + 0.1))
    assert test.evidence().reference == pytest.approx(0.06)
    assert test.evidence().pointed == pytest.approx(0.3)
    assert test.evidence().against == "anchor"


def test_more_answers_in_a_round_take_the_place_of_the_first() -> None:
    once, twice = AlarmTest(0.05, 4), AlarmTest(0.05, 4)
    once.record(1, "anchor", Granted(10, 20))
    twice.record(1, "anchor", Granted(5, 9))
    twice.record(1, "anchor", Granted(10, 20))
    assert once.state() == twice.state()


# --- alone ------------------------------------------------------------------------------------------------------


def test_it_needs_neither_torch_nor_settings() -> None:
    """Who has wins and losses of their own waits for nothing else."""
    code = (
        "import sys; from holdfast.guard.sequential import SequentialTest\n"
        "test = SequentialTest(false_alarm=0.05, rounds=4)\n"
        "assert not test.add(wins=12, losses=12, ties=2).alarmed\n"
        "assert test.add(wins=6, losses=30).alarmed\n"
        "assert 'torch' not in sys.modules and 'holdfast.config' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_wins_and_losses_of_ones_own_by_hand() -> None:
    test = SequentialTest(false_alarm=0.05, rounds=2)
    assert test.standing() == Standing(pytest.approx(1.0), 20.0)
    test.add(wins=1, losses=0)
    standing = test.add(wins=0, losses=1, ties=2)
    expected = 0.45 * math.exp(log_evidence(2, 2)) + 0.45 * math.exp(log_evidence(1, 2)) + 0.1
    assert standing.evidence == pytest.approx(expected)
    assert not standing.alarmed
    with pytest.raises(HoldfastError, match="none below 0"):
        test.add(wins=-1, losses=0)


def test_the_guards_alarm_is_made_of_it() -> None:
    alone, whole = SequentialTest(0.05, 8), AlarmTest(0.05, 8)
    for round, (wins, losses) in enumerate([(20, 4), (10, 30), (5, 19)], start=1):
        standing = alone.add(wins, losses)
        whole.record(round, "anchor", Granted(wins, losses))
        assert whole.evidence().anchor == SHARES["anchor"] * standing.evidence
    alone.spend()
    assert not alone.standing().alarmed
    again = SequentialTest(0.05, 8)
    again.restore(json.loads(json.dumps(alone.state())))
    assert again.add(3, 30) == alone.add(3, 30)


def test_false_alarms_alone_are_below_five_per_cent() -> None:
    rng = torch.Generator().manual_seed(3)
    alarms, runs = 0, 600
    for _ in range(runs):
        test = SequentialTest(0.05, 8)
        rounds = torch.binomial(torch.full((8,), 24.0), torch.full((8,), 0.5), generator=rng).tolist()
        alarms += any(test.add(wins, 24 - wins).alarmed for wins in rounds)
    assert alarms / runs < 0.05


# --- whole runs -------------------------------------------------------------------------------------------------


def alarm_round(rates: list[float], pairs: int, rng: torch.Generator, reference_rate: float = 0.5) -> int | None:
    """The round in which a run alarms in which people prefer the policy to the anchor at these rates."""
    test = AlarmTest(1 / BAR, len(rates))
    for round, rate in enumerate(rates, start=1):
        chances: dict[Against, tuple[float, int]] = {
            "anchor": (rate, pairs),
            "pointed": (rate, pairs),
            "reference": (reference_rate, 24),
        }
        for against, (chance, count) in chances.items():
            wins = int((torch.rand(count, generator=rng) < chance).sum())
            test.record(round, against, Granted(wins, count - wins))
        if test.evidence().alarmed:
            return round
    return None


@pytest.mark.parametrize(("rounds", "pairs"), [(8, 24), (8, 72), (30, 24)])
def test_false_alarms_of_whole_runs_are_below_five_per_cent(rounds: int, pairs: int) -> None:
    """At 1/2 against both, the worst that a healthy run can be."""
    rng = torch.Generator().manual_seed(rounds + pairs)
    runs = 600
    alarms = sum(alarm_round([0.5] * rounds, pairs, rng) is not None for _ in range(runs))
    assert alarms / runs < 0.05


def test_a_run_that_improves_hardly_ever_alarms() -> None:
    rng = torch.Generator().manual_seed(5)
    alarms = sum(alarm_round([0.6] * 8, 48, rng, reference_rate=0.7) is not None for _ in range(300))
    assert alarms / 300 < 0.01


@pytest.mark.parametrize(
    ("rate", "pairs", "within", "power"), [(0.3, 72, 2, 0.88), (0.3, 24, 5, 0.8), (0.2, 72, 1, 0.9)]
)
def test_power_after_three_healthy_rounds(rate: float, pairs: int, within: int, power: float) -> None:
    """The share of hacked runs that alarm within so many rounds of the onset."""
    rng = torch.Generator().manual_seed(7)
    rounds = [alarm_round([0.62] * 3 + [rate] * 5, pairs, rng, 0.65) for _ in range(200)]
    assert sum(r is not None and 3 < r <= 3 + within for r in rounds) / len(rounds) >= power


def test_falling_behind_only_in_pointed_pairs_alarms_too() -> None:
    test = AlarmTest(0.05, 8)
    test.record(1, "anchor", Granted(36, 36))
    test.record(1, "pointed", Granted(18, 54))
    assert test.evidence().alarmed
    assert test.evidence().against == "pointed"


def test_falling_behind_the_reference_alarms_too() -> None:
    test = AlarmTest(0.05, 8)
    test.record(1, "reference", Granted(8, 64))
    assert test.evidence().alarmed
    assert test.evidence().against == "reference"


# --- after an alarm ---------------------------------------------------------------------------------------------


def test_spent_evidence_does_not_alarm_again() -> None:
    test = AlarmTest(0.05, 8)
    test.record(1, "anchor", Granted(40, 32))
    test.record(2, "anchor", Granted(10, 62))
    assert test.evidence().alarmed
    test.spend()
    assert test.evidence().value == pytest.approx(weight_after(2, 8))
    assert not test.evidence().alarmed
    # What comes later is weighed as it always was.
    fresh = AlarmTest(0.05, 8)
    for each in (test, fresh):
        each.record(3, "anchor", Granted(20, 52))
    start, later = start_weight(3, 8), math.exp(log_evidence(20, 52))
    assert test.evidence().anchor == pytest.approx(SHARES["anchor"] * (start * later + weight_after(3, 8)))
    assert fresh.evidence().anchor > test.evidence().anchor


def test_false_alarms_after_a_rollback_are_below_five_per_cent_too() -> None:
    rng = torch.Generator().manual_seed(11)
    alarms, runs = 0, 500
    for _ in range(runs):
        test = AlarmTest(1 / BAR, 8)
        test.record(1, "anchor", Granted(5, 67))
        assert test.evidence().alarmed
        test.spend()
        for round in range(2, 9):
            wins = int((torch.rand(48, generator=rng) < 0.5).sum())
            test.record(round, "anchor", Granted(wins, 48 - wins))
            if test.evidence().alarmed:
                alarms += 1
                break
    assert alarms / runs < 0.05


def test_memory_survives_as_json() -> None:
    test = AlarmTest(0.05, 8)
    test.record(1, "anchor", Granted(12, 12))
    test.spend()
    test.record(2, "reference", Granted(10.5, 13.5))
    again = AlarmTest(0.05, 8)
    again.restore(json.loads(json.dumps(test.state())))
    assert again.state() == test.state()
    assert again.evidence() == test.evidence()


def test_an_impossible_false_alarm_rate_is_refused() -> None:
    with pytest.raises(HoldfastError, match="false-alarm"):
        AlarmTest(0.0, 8)
