"""Tails and intervals against printed tables, sums that are exact, and figures worked out another way."""

import math
from itertools import product
from statistics import fmean

import pytest
import torch

from holdfast.statistics import (
    Share,
    binomial_tail,
    bootstrap,
    chance_of_best,
    incomplete_beta,
    log_incomplete_beta,
    mean_interval,
    normal_quantile,
    normal_tail,
    share_of,
    student_quantile,
    student_tail,
    wilson,
)


@pytest.mark.parametrize(
    ("t", "freedom", "tail"),
    [
        (31.8205, 1, 0.01),
        (4.0321, 5, 0.005),
        (2.9980, 7, 0.01),
        (2.2281, 10, 0.025),
        (1.6973, 30, 0.05),
        (2.3578, 120, 0.01),
        (0.0, 3, 0.5),
    ],
)
def test_students_t_as_in_the_tables(t: float, freedom: int, tail: float) -> None:
    assert student_tail(t, freedom) == pytest.approx(tail, rel=2e-4)
    assert student_tail(-t, freedom) == pytest.approx(1 - tail, rel=2e-4)


def test_students_t_far_out_by_its_closed_form_for_two_degrees_of_freedom() -> None:
    for t in (0.5, 3.0, 50.0, 2000.0):
        # 1/2 - t / (2 sqrt(2 + t^2)), written so that nothing cancels
        root = math.sqrt(2 + t * t)
        assert student_tail(t, 2) == pytest.approx(1 / (root * (root + t)), rel=1e-9)


@pytest.mark.parametrize(("tail", "freedom"), [(0.025, 1), (0.025, 9), (0.005, 40), (1e-6, 5)])
def test_the_quantile_undoes_the_tail(tail: float, freedom: int) -> None:
    assert student_tail(student_quantile(tail, freedom), freedom) == pytest.approx(tail, rel=1e-9)


def test_incomplete_beta_where_it_has_a_simple_form() -> None:
    for x in (0.01, 0.3, 0.5, 0.77, 0.999):
        assert incomplete_beta(x, 1, 4.5) == pytest.approx(1 - (1 - x) ** 4.5, rel=1e-12)
        assert incomplete_beta(x, 3.2, 1) == pytest.approx(x**3.2, rel=1e-12)
        assert incomplete_beta(x, 0.5, 0.5) == pytest.approx(2 / math.pi * math.asin(math.sqrt(x)), rel=1e-12)
    assert incomplete_beta(0.0, 2, 3) == 0.0
    assert incomplete_beta(1.0, 2, 3) == 1.0


@pytest.mark.parametrize(("k", "n", "numerator", "denominator"), [(3, 10, 1, 2), (7, 9, 1, 3), (1, 40, 3, 4)])
def test_incomplete_beta_is_a_binomial_tail(k: int, n: int, numerator: int, denominator: int) -> None:
    other = denominator - numerator
    whole = sum(math.comb(n, j) * numerator**j * other ** (n - j) for j in range(k, n + 1))
    expected = whole / denominator**n
    assert incomplete_beta(numerator / denominator, k, n - k + 1) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("k", "n"), [(2000, 2002), (900, 1500), (1200, 1300)])
def test_its_logarithm_goes_on_where_floats_end(k: int, n: int) -> None:
    whole = sum(math.comb(n, j) for j in range(k, n + 1))
    expected = math.log(whole) - n * math.log(2)
    assert log_incomplete_beta(0.5, k, n - k + 1) == pytest.approx(expected, rel=1e-10)


def test_the_normal_tail() -> None:
    assert normal_tail(1.959963984540054) == pytest.approx(0.025, rel=1e-12)
    assert normal_tail(0.0) == 0.5


def test_the_interval_by_students_t() -> None:
    # Mean 2, sd 1, n 3: 4.303 / sqrt(3) = 2.4843 either way.
    found = mean_interval([1.0, 2.0, 3.0])
    assert (found.value, found.low, found.high) == pytest.approx((2.0, -0.4843, 4.4843), abs=1e-3)


@pytest.mark.parametrize(("count", "published"), [(5, 2.776), (31, 2.042), (32, 2.0395), (41, 2.0211), (121, 1.9799)])
def test_students_t(count: int, published: float) -> None:
    assert student_quantile(0.025, count - 1) == pytest.approx(published, abs=5e-4)


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
    estimate = share_of(hits, count)
    assert (estimate.mean, estimate.low, estimate.high) == pytest.approx((hits / count, low, high), abs=5e-4)


def test_a_share_of_nothing_is_wide_open() -> None:
    assert (share_of(0, 0).low, share_of(0, 0).high, share_of(0, 0).count) == (0.0, 1.0, 0)


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


def test_quantiles_from_the_table() -> None:
    assert normal_quantile(0.05) == pytest.approx(1.6449, abs=1e-4)
    assert normal_quantile(0.1) == pytest.approx(1.2816, abs=1e-4)


def test_binomial_tails_by_hand() -> None:
    # P(X >= 8 of 10) = (45 + 10 + 1) / 1024
    assert binomial_tail(8, 10, 0.5) == pytest.approx(56 / 1024)
    assert binomial_tail(3, 3, 0.6) == pytest.approx(0.216)
    assert binomial_tail(0, 0, 0.5) == 1.0
    assert binomial_tail(4, 3, 0.5) == 0.0
    # Many draws: 2000, 2 standard deviations and a half.
    exact = sum(math.comb(2000, j) for j in range(1056, 2001)) / 2**2000
    assert binomial_tail(1056, 2000, 0.5) == pytest.approx(exact, rel=1e-11)


def test_wilson_by_hand() -> None:
    # Brown, Cai and DasGupta's formula for 15 of 56 at 1.96: centre (15 + 1.9207) / (56 + 3.8415) = 0.28276
    found = wilson(15, 56)
    assert found.value == pytest.approx(15 / 56)
    assert (found.low + found.high) / 2 == pytest.approx(0.28276, abs=1e-4)
    half = 1.96 * math.sqrt(56 * (15 / 56) * (41 / 56) + 0.9604) / 59.8415
    assert found.high - found.low == pytest.approx(2 * half, rel=1e-3)
    assert wilson(0, 10).low == 0.0
    assert wilson(0, 10).high == pytest.approx(0.2775, abs=1e-4)
    assert wilson(10, 10).high == pytest.approx(1.0)


def test_a_mean_of_differences() -> None:
    # Differences 0.5, 0.1, 0.3: mean 0.3, sd 0.2, t(0.025, 2) = 4.3027
    found = mean_interval([0.5, 0.1, 0.3])
    assert found.value == pytest.approx(0.3)
    assert found.high == pytest.approx(0.3 + 4.3027 * 0.2 / math.sqrt(3), abs=1e-4)
    alone = mean_interval([0.2]).within(-1.0, 1.0)
    assert (alone.value, alone.low, alone.high) == (0.2, -1.0, 1.0)


@pytest.mark.parametrize(
    ("value", "count", "words", "note"),
    [
        # Wilson for 1 of 2: (1/2 + z^2/4 +- z sqrt(1/8 + z^2/16)) / (1 + z^2/2) with z^2 = 3.8415 is 9.45% and 90.55%.
        (0.5, 2, "1 of 2 labels (9% to 91%)", "of 2, 9% to 91%"),
        (1.0, 1, "1 of 1 label (21% to 100%)", "of 1, 21% to 100%"),
        (0.5625, 24, "13.5 of 24 labels (37% to 74%)", "of 24, 37% to 74%"),
        (0.6601, 24, "66% of 24 labels (46% to 82%)", "of 24, 46% to 82%"),  # a mean over members is no count
        (0.7142857313156128, 21, "15 of 21 labels (50% to 86%)", "of 21, 50% to 86%"),  # 15 / 21 as a float of 32 bits
        (0.58, 1200, "58% of 1,200 labels", "of 1,200"),
        (0.0, 0, "0 labels", "of 0, 0% to 100%"),
    ],
)
def test_a_share_is_said_with_its_count_and_its_interval_where_that_is_small(
    value: float, count: int, words: str, note: str
) -> None:
    share = Share(value, count)
    assert share.of("label") == words
    assert share.note == note
