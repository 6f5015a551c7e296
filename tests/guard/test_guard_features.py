"""Distances in feature space, against the formulas written out."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from holdfast.guard.features import fit_ellipsoid, fit_kernel, shrunk


def drawn(rows: int, columns: int, seed: int) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def mmd_by_loops(x: list[list[float]], y: list[list[float]]) -> float:
    def square(a: list[float], b: list[float]) -> float:
        return sum((p - q) ** 2 for p, q in zip(a, b, strict=True))

    distances = sorted(math.sqrt(square(y[i], y[j])) for i in range(len(y)) for j in range(i))
    rate = 1 / (2 * distances[(len(distances) - 1) // 2] ** 2)  # the lower median, as torch has it

    def mean(a: list[list[float]], b: list[list[float]], same: bool) -> float:
        values = [
            math.exp(-rate * square(p, q)) for i, p in enumerate(a) for j, q in enumerate(b) if not same or i != j
        ]
        return sum(values) / len(values)

    return mean(x, x, True) + mean(y, y, True) - 2 * mean(x, y, False)


def test_the_shift_is_the_unbiased_discrepancy() -> None:
    x_BD, y_MD = drawn(7, 3, 1) + 0.5, drawn(11, 3, 2)
    kernel = fit_kernel(y_MD)
    assert kernel is not None
    assert kernel.shift(x_BD) == pytest.approx(mmd_by_loops(x_BD.tolist(), y_MD.tolist()), rel=1e-5)


def test_the_shift_is_nothing_on_average_without_one_and_grows_with_it() -> None:
    kernel = fit_kernel(drawn(400, 16, 0))
    assert kernel is not None
    still = [kernel.shift(drawn(64, 16, seed)) or 0.0 for seed in range(1, 60)]
    moved = [kernel.shift(drawn(64, 16, seed) + 0.3) or 0.0 for seed in range(1, 60)]
    assert abs(sum(still) / len(still)) < 1e-3
    assert min(still) < 0
    assert min(moved) > max(still)


def test_too_few_answers_have_no_distance() -> None:
    assert fit_kernel(drawn(1, 4, 0)) is None
    assert fit_ellipsoid(drawn(1, 4, 0)) is None
    kernel = fit_kernel(drawn(5, 4, 0))
    assert kernel is not None
    assert kernel.shift(drawn(1, 4, 1)) is None


def test_labelled_answers_that_are_all_alike_do_not_break_it() -> None:
    kernel, ellipsoid = fit_kernel(torch.ones(5, 3)), fit_ellipsoid(torch.ones(5, 3))
    assert kernel is not None
    assert ellipsoid is not None
    assert math.isfinite(kernel.shift(drawn(4, 3, 0)) or 0.0)
    assert math.isfinite(ellipsoid.distance(drawn(4, 3, 0)) or 0.0)


def test_the_distance_is_mahalanobis() -> None:
    y_MD, x_BD = drawn(50, 4, 3) @ drawn(4, 4, 4), drawn(6, 4, 5)
    ellipsoid = fit_ellipsoid(y_MD)
    assert ellipsoid is not None
    mean_D = y_MD.double().mean(0)
    centred_MD = y_MD.double() - mean_D
    inverse_DD = torch.linalg.inv(shrunk(centred_MD.T @ centred_MD / 50, 50))
    expected = [math.sqrt(float((x - mean_D) @ inverse_DD @ (x - mean_D)) / 4) for x in x_BD.double()]
    assert ellipsoid.distance(x_BD) == pytest.approx(sum(expected) / len(expected), rel=1e-8)


def test_labelled_answers_are_at_distance_about_one() -> None:
    y_MD = drawn(500, 20, 6) * torch.linspace(0.1, 3.0, 20)
    ellipsoid = fit_ellipsoid(y_MD)
    assert ellipsoid is not None
    assert ellipsoid.distance(y_MD) == pytest.approx(1.0, abs=0.1)
    assert (ellipsoid.distance(y_MD + 2.0) or 0.0) > 1.5


def test_shrinkage_by_hand() -> None:
    # trace 4, trace of the square 10; D = 2, so 1 - 2/D = 0 and n + 1 - 2/D = n
    covariance_DD = torch.tensor([[3.0, 0.0], [0.0, 1.0]])
    share = 16 / (20 * (10 - 8))
    expected_DD = (1 - share) * covariance_DD + share * 2.0 * torch.eye(2)
    assert torch.allclose(shrunk(covariance_DD, 20), expected_DD)
    # Few rows in many dimensions: almost a sphere, so that it has an inverse.
    few_MD = drawn(3, 30, 7)
    few_DD = shrunk(few_MD.T @ few_MD / 3, 3)
    assert float(torch.linalg.eigvalsh(few_DD).min()) > 0.0
