import itertools

import pytest

from holdfast.charts.axes import (
    log_label,
    log_ticks,
    nice_ticks,
    smooth,
    spread_labels,
    thin_places,
    tick_labels,
)
from holdfast.text import format_setting, format_value


@pytest.mark.parametrize(
    ("low", "high", "target", "integer", "expected"),
    [
        (0.0, 1.0, 5, False, ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (0.0, 10.0, 4, False, ["0", "2.5", "5.0", "7.5", "10.0"]),
        (-1.0, 1.0, 4, False, ["−1.0", "−0.5", "0", "0.5", "1.0"]),
        (0.0, 2e-5, 4, False, ["0", "5e-6", "1e-5", "1.5e-5", "2e-5"]),
        (0.0, 3.0, 8, True, ["0", "1", "2", "3"]),
        (0.0, 12_000.0, 3, True, ["0", "5,000", "10,000"]),
        # rough = 120 / 5 = 24; steps of 25 are allowed for whole numbers, steps of 2.5 would not be
        (0.0, 120.0, 5, True, ["0", "25", "50", "75", "100"]),
    ],
)
def test_ticks_are_round_and_read_well(low, high, target, integer, expected):
    assert tick_labels(nice_ticks(low, high, target, integer)) == expected


def test_ticks_of_a_point_and_of_a_range_without_a_whole_number():
    assert nice_ticks(3.0, 3.0) == [3.0]
    assert tick_labels(nice_ticks(0.2, 0.8, 4, integer=True)) == []


def test_percent_and_prefix_labels():
    assert tick_labels([0.0, 0.05, 0.1], percent=True) == ["0%", "5%", "10%"]
    assert tick_labels([1.0, 2.0], prefix="v") == ["v1", "v2"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.00"),
        (1.8399, "1.84"),
        (0.0312, "0.031"),
        (-0.5, "−0.50"),
        (-0.0001, "−1e-4"),
        (12.34, "12.3"),
        (1234.5, "1,234"),
        (3e-6, "3e-6"),
        (5e8, "5e8"),
        (None, "unknown"),
        (float("nan"), "unknown"),
    ],
)
def test_values_read_as_in_a_sentence(value, text):
    assert format_value(value) == text


def test_a_value_beside_a_larger_one_gets_its_decimals_and_no_minus_zero():
    assert format_value(0.017, beside=1.65) == "0.02"
    assert format_value(-0.001, beside=1.65) == "0.00"


def test_percent_values_and_settings():
    assert format_value(0.782, percent=True) == "78.2%"
    assert [format_setting(v) for v in (8.0, 0.05, 2e-5, 1500.0)] == ["8", "0.05", "2e-5", "1,500"]


def test_smooth_is_a_centred_mean_that_narrows_at_the_ends_and_keeps_gaps():
    # window 3: ends alone; (0+3+6)/3 = 3; (3+6+gap)/2 = 4.5; the gap stays; (gap+8+10)/2 = 9
    assert smooth([0.0, 3.0, 6.0, None, 8.0, 10.0], 3) == [0.0, 3.0, 4.5, None, 9.0, 10.0]


def test_a_straight_line_stays_where_it_is_when_smoothed():
    line = [2.0 * x for x in range(30)]
    assert smooth(line, 7) == pytest.approx(line)


def test_thinning_keeps_ends_and_a_single_peak_of_a_long_run():
    heights = [9.0 if x == 31_234 else 0.0 for x in range(50_000)]
    kept = thin_places(heights, 300)
    assert len(kept) <= 4 * 300
    assert 31_234 in kept
    assert (kept[0], kept[-1]) == (0, 49_999)
    assert kept == sorted(kept)


def test_labels_move_as_little_as_possible():
    # two labels wanted at 50 with a gap of 14: the block is centred on 50, so 43 and 57; the third is free
    assert spread_labels([50.0, 50.0, 90.0], 14.0, 0.0, 100.0) == [43.0, 57.0, 90.0]


def test_labels_stay_inside_and_apart():
    placed = spread_labels([99.0, 98.0, 97.0, 2.0], 14.0, 0.0, 100.0)
    ordered = sorted(placed)
    assert ordered[0] == pytest.approx(2.0)
    assert ordered[-1] == pytest.approx(100.0)
    assert all(b - a >= 14.0 - 1e-9 for a, b in itertools.pairwise(ordered))
    assert placed[0] > placed[1] > placed[2]  # order of the lines is kept


def test_labels_that_cannot_fit_share_the_space():
    assert spread_labels([5.0, 5.0, 5.0], 14.0, 0.0, 10.0) == pytest.approx([0.0, 5.0, 10.0])


@pytest.mark.parametrize(
    ("low", "high", "target", "ticks"),
    [
        (0.02, 30.0, 5, [0.1, 1.0, 10.0]),
        (1e-3, 1e3, 4, [1e-3, 1e-1, 10.0, 1e3]),
        (1.5, 8.0, 5, [2.0, 5.0]),
        (30.0, 40.0, 5, [30.0]),
        (8.0, 12.0, 5, [10.0]),
    ],
)
def test_ticks_of_a_logarithmic_axis(low, high, target, ticks):
    assert log_ticks(low, high, target) == pytest.approx(ticks)


def test_labels_of_a_logarithmic_axis_are_short():
    values = [1e-5, 0.001, 0.5, 1, 200, 1e3, 2e4, 1e6, 5e9]
    assert [log_label(v) for v in values] == ["1e-5", "0.001", "0.5", "1", "200", "1k", "20k", "1M", "5G"]
