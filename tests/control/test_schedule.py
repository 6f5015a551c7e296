"""Learning rates of policy and refresh."""

import json

import pytest

from holdfast.control.schedule import LearningRate, RefreshSchedule


def test_warm_up_then_level() -> None:
    rate = LearningRate(base=4e-4, warmup_steps=4)
    seen = []
    for _ in range(6):
        seen.append(rate.rate)
        rate.advance()
    assert seen == pytest.approx([1e-4, 2e-4, 3e-4, 4e-4, 4e-4, 4e-4])
    assert LearningRate(base=1e-3, warmup_steps=0).rate == 1e-3


def test_each_settling_cuts_the_rate_down_to_the_floor() -> None:
    rate = LearningRate(base=1.0, warmup_steps=0)
    seen = []
    for _ in range(8):
        rate.settle()
        seen.append(rate.rate)
    assert seen[:3] == pytest.approx([0.7, 0.49, 0.343])
    assert seen[5:] == pytest.approx([0.7**6, 0.1, 0.1])


def test_settling_during_warm_up_scales_the_warm_up() -> None:
    rate = LearningRate(base=1.0, warmup_steps=4)
    rate.settle()
    rate.advance()
    assert rate.rate == pytest.approx(0.35)  # 2/4 of the way, times 0.7


def test_slowing_down_halves_the_rate_below_the_floor_too_and_settling_does_not_bring_it_back() -> None:
    schedule = LearningRate(1.0, 0)
    schedule.settle()
    schedule.slow_down(3)
    assert schedule.rate == 0.7 / 8
    schedule.settle()
    assert schedule.rate == 0.7 / 8


def test_state_round_trip_is_exact() -> None:
    rate = LearningRate(base=3e-4, warmup_steps=10)
    for _ in range(5):
        rate.advance()
    rate.settle()
    restored = LearningRate(base=3e-4, warmup_steps=10)
    restored.restore(json.loads(json.dumps(rate.state())))
    for _ in range(8):
        assert restored.rate == rate.rate
        rate.advance()
        restored.advance()


def test_refresh_warms_up_and_decays_to_a_tenth() -> None:
    # Peak at step 1, a tenth at step 10, a straight line between: each step loses 0.1 of the peak.
    schedule = RefreshSchedule(lr=1.0, warmup_steps=2, total_steps=11)
    assert [schedule.at(i) for i in range(11)] == pytest.approx([0.5, 1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1])
    assert schedule.at(50) == pytest.approx(0.1)


def test_refresh_without_warm_up_and_very_short_ones() -> None:
    schedule = RefreshSchedule(lr=2.0, warmup_steps=0, total_steps=3)
    assert [schedule.at(i) for i in range(3)] == pytest.approx([2.0, 1.1, 0.2])
    assert RefreshSchedule(lr=2.0, warmup_steps=0, total_steps=1).at(0) == 2.0
    short = RefreshSchedule(lr=2.0, warmup_steps=10, total_steps=2)
    assert [short.at(i) for i in range(2)] == pytest.approx([0.2, 0.4])
