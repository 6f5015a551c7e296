"""Tails against printed tables, and against sums that are exact."""

import math

import pytest

from holdfast.guard.distributions import (
    incomplete_beta,
    log_incomplete_beta,
    normal_tail,
    student_quantile,
    student_tail,
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
