"""Is an unusual reading called unusual as often as it should be, and a healthy drift not?"""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch

from holdfast.guard.baseline import Baseline, level_prediction, p_and_z, trend_prediction
from holdfast.guard.signal import Direction, Scale, Signal, level
from holdfast.statistics import student_tail


def signal(side: Direction = "high", scale: Scale = "plain", floor: float = 0.0) -> Signal:
    return Signal(
        name="made_up", family="length", meaning="", unit="", side=side, words=level("it is"),
        read=lambda view, known: None, scale=scale, floor=floor,
    )  # fmt: skip


def baseline(values: list[float], **more: object) -> Baseline:
    out = Baseline(replace(signal(), **more), window=40)  # type: ignore[arg-type]
    for value in values:
        out.add_reference(value)
    return out


# --- by hand ----------------------------------------------------------------------------------------------------


def test_the_level_by_hand() -> None:
    # 1 2 3 4 5: mean 3, sd sqrt(2.5); t = (6 - 3) / sqrt(2.5 * 1.2) = sqrt(3)
    prediction = level_prediction([1, 2, 3, 4, 5], floor=0.0)
    assert prediction.z(6) == pytest.approx(math.sqrt(3))
    assert prediction.freedom == 4
    # A table has P(T > 2.1318) = 0.05 for 4 degrees of freedom.
    assert baseline([1, 2, 3, 4, 5]).p_value(3 + 2.1318 * math.sqrt(3)) == pytest.approx(0.05, rel=1e-3)


def test_the_trend_by_hand() -> None:
    # y = 0 1 1 2 at u = 0 1 2 3: slope 0.6, line 0.1 + 0.6 u, residuals -.1 .3 -.3 .1, e^2 = 0.2 / 2, S = 5
    prediction = trend_prediction([(0, 0), (1, 1), (2, 1), (3, 2)], at=5.0, floor=0.0)
    assert prediction is not None
    assert prediction.centre == pytest.approx(3.1)
    assert prediction.width == pytest.approx(math.sqrt(0.1 * (1 + 1 / 4 + 3.5**2 / 5)))
    assert prediction.freedom == 2
    assert trend_prediction([(0, 1), (0, 2), (0, 3)], at=1.0, floor=0.0) is None


def test_a_reading_has_to_be_beyond_both() -> None:
    low, high = level_prediction([1, 2, 3, 4, 5], 0.0), level_prediction([11, 12, 13, 14, 15], 0.0)
    assert p_and_z(8.0, [low, high], "high")[0] > 0.9
    assert p_and_z(8.0, [low, high], "low")[0] > 0.9
    assert p_and_z(8.0, [low, high], "both") == (1.0, 0.0)
    assert p_and_z(30.0, [low, high], "high") == (high.above(30.0), high.z(30.0))
    assert p_and_z(-20.0, [low, high], "low") == (low.below(-20.0), low.z(-20.0))


def test_sides() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 5.0]
    one, other = baseline(values, side="high").p_value(9), baseline(values, side="low").p_value(9)
    assert one is not None
    assert other == pytest.approx(1 - one)
    assert baseline(values, side="both").p_value(9) == pytest.approx(2 * one)
    assert baseline(values, side="both").p_value(-3) == pytest.approx(2 * one)


def test_too_short_a_baseline_says_nothing() -> None:
    assert baseline([1.0, 2.0, 3.0]).p_value(100.0) is None
    assert baseline([1.0, 2.0, 3.0, 4.0]).p_value(100.0) is not None
    assert baseline([1.0, 2.0, 3.0, 4.0]).compare([]) is None


# --- the floor --------------------------------------------------------------------------------------------------


def test_a_constant_baseline_does_not_make_every_change_a_miracle() -> None:
    constant = baseline([10.0] * 8)
    # sd is 5% of 10, so 10.5 is one floor away: t = 1 / sqrt(1 + 1/8)
    assert constant.p_value(10.5) == pytest.approx(student_tail(1 / math.sqrt(1.125), 7))
    assert (constant.p_value(15.0) or 0.0) < 1e-3
    zeros = baseline([0.0] * 8, floor=0.01)
    assert zeros.p_value(0.01) == pytest.approx(student_tail(1 / math.sqrt(1.125), 7))
    assert 0.0 < (baseline([0.0] * 8).p_value(1.0) or 0.0) < 1e-6


def test_on_the_log_scale_the_floor_is_five_per_cent_of_the_reading() -> None:
    for size in (1.0, 50.0):
        found = baseline([size] * 8, scale="log").p_value(size * math.exp(0.05))
        assert found == pytest.approx(student_tail(1 / math.sqrt(1.125), 7))


# --- calibration ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [4, 8, 24])
@pytest.mark.parametrize("side", ["high", "both"])
def test_one_in_a_hundred_is_below_one_per_cent(count: int, side: Direction) -> None:
    rng = torch.Generator().manual_seed(count)
    runs = 6000
    draws = (10 + 3 * torch.randn(runs, count + 1, generator=rng)).tolist()
    p_values = [baseline(row[:-1], side=side).p_value(row[-1]) or 0.0 for row in draws]
    # Standard error 0.0013 at 1%, 0.0028 at 5%.
    assert sum(p < 0.01 for p in p_values) / runs == pytest.approx(0.01, abs=0.004)
    assert sum(p < 0.05 for p in p_values) / runs == pytest.approx(0.05, abs=0.009)


def rounds_of(path: torch.Tensor, side: Direction = "both", scale: Scale = "plain") -> list[float]:
    """p-values of a path's rounds of ten steps, each joining the baseline; its first 8 values are the reference's."""
    values = path.tolist()
    found = baseline(values[:8], side=side, scale=scale)
    p_values, steps = [], values[8:]
    for start in range(0, len(steps), 10):
        readings = [(start + i + 1, x) for i, x in enumerate(steps[start : start + 10])]
        deviation = found.compare(readings)
        assert deviation is not None
        p_values.append(deviation.p)
        found.add_healthy(readings)
    return p_values


def test_rounds_without_a_drift_are_hardly_ever_suspicious() -> None:
    rng = torch.Generator().manual_seed(1)
    p_values = [p for _ in range(150) for p in rounds_of(10 + 3 * torch.randn(88, generator=rng))]
    assert sum(p < 0.01 for p in p_values) / len(p_values) <= 0.01


@pytest.mark.parametrize(
    ("shape", "power"), [("straight", 1.0), ("slowing", 0.5)]
)  # value = size * (steps / 80) ** power
@pytest.mark.parametrize("side", ["high", "both"])
def test_a_healthy_drift_is_got_used_to(shape: str, power: float, side: Direction) -> None:
    """Ten standard deviations over a run: after the first round, which nothing can be known about, no alarm."""
    rng = torch.Generator().manual_seed(2)
    steps = torch.cat([torch.zeros(8), torch.arange(1, 81)]) / 80
    runs = [rounds_of(100 + 100 * steps**power + 10 * torch.randn(88, generator=rng), side) for _ in range(60)]
    later = [p for p_values in runs for p in p_values[1:]]
    assert sum(p < 0.01 for p in later) / len(later) <= 0.02
    first = [p_values[0] for p_values in runs]
    assert sum(p < 0.0005 for p in first) / len(first) <= 0.1


def test_a_jump_after_a_healthy_drift_is_seen() -> None:
    rng = torch.Generator().manual_seed(3)
    steps = torch.cat([torch.zeros(8), torch.arange(1, 81)]) / 80
    path = 100 + 30 * steps[None, :] + 5 * torch.randn(60, 88, generator=rng)
    path[:, 58:] += 40.0  # from the sixth round on
    sixth = [rounds_of(row)[5] for row in path]
    assert sum(p < 0.001 for p in sixth) / len(sixth) > 0.9


# --- memory -----------------------------------------------------------------------------------------------------


def test_the_window_forgets_healthy_steps_but_never_the_reference() -> None:
    found = Baseline(signal(), window=5)
    for value in (1.0, 2.0, 3.0, 4.0):
        found.add_reference(value)
    found.add_healthy([(i, 100.0 + i) for i in range(1, 21)])
    assert len(found) == 9
    assert [value for _, value in found.state()["healthy"]] == [116.0, 117.0, 118.0, 119.0, 120.0]
    assert found.state()["reference"] == [1.0, 2.0, 3.0, 4.0]


def test_words_compare_with_the_reference_where_it_has_a_reading() -> None:
    found = Baseline(signal(), window=5)
    found.add_healthy([(i, float(i)) for i in range(1, 6)])
    deviation = found.compare([(6, 9.0)])
    assert deviation is not None
    assert (deviation.usual.value, deviation.usual.of_reference, deviation.value) == (3.0, False, 9.0)
    found.add_reference(7.0)
    again = found.compare([(6, 9.0)])
    assert again is not None
    assert (again.usual.value, again.usual.of_reference) == (7.0, True)


def test_memory_survives_as_json() -> None:
    found = baseline([1.0, 2.5, 3.0, 4.0])
    found.add_healthy([(1, 3.25), (2, 3.5)])
    again = Baseline(signal(), window=40)
    again.restore(json.loads(json.dumps(found.state())))
    assert again.state() == found.state()
    assert again.p_value(4.5) == found.p_value(4.5)
