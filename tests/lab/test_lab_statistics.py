"""Means, shares and intervals against figures worked out another way; when gold counts as fallen."""

import math
from itertools import product
from statistics import fmean

import pytest
import torch

from holdfast.lab.statistics import bootstrap, chance_of_best, kept_its_peak, mean_interval, onset, share, t_975


def test_the_interval_by_students_t() -> None:
    # Mean 2, sd 1, n 3: 4.303 / sqrt(3) = 2.4843 either way.
    mean, low, high = mean_interval([1.0, 2.0, 3.0])
    assert (mean, low, high) == pytest.approx((2.0, -0.4843, 4.4843), abs=1e-3)


@pytest.mark.parametrize(("count", "published"), [(5, 2.776), (31, 2.042), (32, 2.0395), (41, 2.0211), (121, 1.9799)])
def test_students_t(count: int, published: float) -> None:
    assert t_975(count) == pytest.approx(published, abs=5e-4)


def test_the_bootstrap_against_all_resamples() -> None:
    """Of three values there are 27 resamples; their percentiles can be counted."""
    values = [0.0, 1.0, 5.0]
    means = sorted(fmean(resample) for resample in product(values, repeat=3))
    # 2.5% of 27 is below one resample: the ends are the lowest and the highest mean. Student's t of 2 degrees of
    # freedom is 4.303, so they are drawn out by 4.303 / 1.96 * sqrt(3 / 2) = 2.6889.
    estimate = bootstrap(values)
    assert estimate.mean == 2.0
    assert (estimate.low, estimate.high) == pytest.approx(
        (2.0 + 2.6889 * (means[0] - 2.0), 2.0 + 2.6889 * (means[-1] - 2.0)), abs=1e-3
    )
    assert estimate.count == 3


def test_the_bootstrap_of_five_values_holds_the_truth_as_often_as_it_says() -> None:
    """Of 1,000 samples of five normal values; the plain percentiles hold it in 84%."""
    rng = torch.Generator().manual_seed(0)
    samples = torch.randn(1000, 5, generator=rng, dtype=torch.float64).tolist()
    held = sum(estimate.low <= 0.0 <= estimate.high for estimate in map(bootstrap, samples))
    assert 930 <= held <= 970


def test_the_bootstrap_is_as_wide_as_the_normal_interval_for_many_values() -> None:
    values = [math.sin(7 * i) for i in range(400)]
    sd = math.sqrt(fmean((v - fmean(values)) ** 2 for v in values))
    half = 1.96 * sd / math.sqrt(len(values))
    estimate = bootstrap(values)
    assert estimate.high - estimate.low == pytest.approx(2 * half, rel=0.05)
    assert bootstrap(values) == estimate


def test_the_bootstrap_of_one_value_has_no_width() -> None:
    estimate = bootstrap([0.25])
    assert (estimate.mean, estimate.low, estimate.high) == (0.25, 0.25, 0.25)
    with pytest.raises(ValueError, match="nothing"):
        bootstrap([])


@pytest.mark.parametrize(
    ("hits", "count", "low", "high"),
    # Published values of Wilson's interval: 0 of 10, 5 of 10, 10 of 10, 8 of 40.
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (8, 40, 0.1050, 0.3476)],
)
def test_wilsons_interval(hits: int, count: int, low: float, high: float) -> None:
    estimate = share(hits, count)
    assert (estimate.mean, estimate.low, estimate.high) == pytest.approx((hits / count, low, high), abs=5e-4)


def test_a_share_of_nothing_is_wide_open() -> None:
    assert (share(0, 0).low, share(0, 0).high, share(0, 0).count) == (0.0, 1.0, 0)


def test_the_chance_of_being_best() -> None:
    sure = chance_of_best({"a": [1.0, 2.0, 3.0], "b": [0.0, 1.0, 2.0]})
    assert sure == {"a": 1.0, "b": 0.0}
    # b wins only where the resample of two rows is the second row twice, or (a tie, which the first takes) never else.
    chance = chance_of_best({"a": [1.0, 0.0], "b": [0.0, 1.0]})
    assert chance["b"] == pytest.approx(0.25, abs=0.02)
    assert sum(chance.values()) == pytest.approx(1.0)


def test_the_chance_of_being_best_of_few_rows() -> None:
    # a is ahead by 3, 1 and -1. Means of three draws are drawn out from 1 by 4.303 / 1.96 * sqrt(3 / 2) = 2.689, so b
    # is best where the draws add up to 1 or less: 1 + 3 + 6 of 27 (and 1 + 3, below 0, if they were not drawn out).
    chance = chance_of_best({"a": [3.0, 1.0, 0.0], "b": [0.0, 0.0, 1.0]})
    assert chance["b"] == pytest.approx(10 / 27, abs=0.02)


@pytest.mark.parametrize(
    ("heldout", "began"),
    [
        ([0.0, 0.5, 1.0], None),
        ([0.0, 1.0, 0.95, 0.91], None),  # within a tenth of the rise
        ([0.0, 1.0, 0.95, 0.89], 3),
        ([0.0, 1.0, 0.5, 0.2, 0.0], 2),
        ([0.0, 1.0, 0.5, 1.0, 0.5], 4),  # the first dip recovered
        ([0.0, 1.0, 0.5, 0.5, 1.0], None),  # two rounds: over before the second round after it began
        ([0.0, 1.0, 0.5, 0.5, 0.5, 1.0], 2),  # it lasted, whatever came later
        ([0.0, 1.0, 0.5, 1.0, 0.5, 0.5, 0.5, 1.0, 1.0], 4),
        ([0.0, 1.0, 0.5, 0.5, 0.5, 1.0, 0.5], 2),  # the first that lasts, not the last
        ([0.0, 0.5, 0.6, 0.4, 1.0], None),
        ([0.0, -0.005, -0.009], None),  # never rose: a fall has to be more than a hundredth
        ([0.0, -0.2, -0.4], 1),
        ([0.1, 0.5, 0.45], 2),  # a rise of .4: .05 is more than a tenth of it
    ],
)
def test_the_onset_is_where_a_fall_that_lasts_begins(heldout: list[float], began: int | None) -> None:
    assert onset(heldout) == began


def test_a_run_keeps_its_peak_within_a_tenth_of_the_rise() -> None:
    assert kept_its_peak(0.0, 1.0, 0.9)
    assert not kept_its_peak(0.0, 1.0, 0.89)
    assert kept_its_peak(0.0, 0.6, 0.6)
