"""The two functional forms: coefficients come back from points made with them, and R^2 says how good a fit is."""

from __future__ import annotations

import math

import pytest
import torch

from holdfast.algorithms.overoptimisation import Form, FormFit, fit_form

D = torch.linspace(0.0, 3.0, 13)


@pytest.mark.parametrize("form", ["best_of_n", "rl"])
def test_coefficients_come_back(form: Form) -> None:
    truth = FormFit(form, 1.5, 0.4, 1.0)
    fit = fit_form(form, D, torch.tensor([truth.at(float(d)) for d in D]))
    assert (fit.a, fit.b, fit.r2) == (pytest.approx(1.5, abs=1e-5), pytest.approx(0.4, abs=1e-5), pytest.approx(1.0))


def test_forms_by_hand() -> None:
    # d = 2: 2 (1.5 - 0.4 * 2) = 1.4 and 2 (1.5 - 0.4 log 2) = 2.445482
    assert FormFit("best_of_n", 1.5, 0.4, 1.0).at(2.0) == pytest.approx(1.4)
    assert FormFit("rl", 1.5, 0.4, 1.0).at(2.0) == pytest.approx(2.445482, abs=1e-6)
    assert FormFit("rl", 1.5, 0.4, 1.0).at(0.0) == 0.0


def test_the_wrong_form_fits_worse() -> None:
    truth = FormFit("best_of_n", 2.0, 0.9, 1.0)
    gold = torch.tensor([truth.at(float(d)) for d in D])
    assert fit_form("rl", D, gold).r2 < fit_form("best_of_n", D, gold).r2


def test_noise_lowers_r2_by_as_much_as_it_weighs() -> None:
    """R^2 worked out from the residuals of numpy's own fit."""
    rng = torch.Generator().manual_seed(0)
    gold = D * (1.0 - 0.2 * D) + 0.05 * torch.randn(13, generator=rng)
    fit = fit_form("best_of_n", D, gold)
    inside = D > 0
    left = [float(g) - fit.at(float(d)) for d, g in zip(D[inside], gold[inside], strict=True)]
    spread = float((gold[inside] - gold[inside].mean()).square().sum())
    assert fit.r2 == pytest.approx(1 - sum(x * x for x in left) / spread, abs=1e-4)
    assert 0.5 < fit.r2 < 1.0
    # No other pair of coefficients leaves less.
    for a, b in ((fit.a + 0.01, fit.b), (fit.a, fit.b + 0.01), (fit.a - 0.01, fit.b - 0.01)):
        other = FormFit("best_of_n", a, b, math.nan)
        assert sum(x * x for x in left) < sum(
            (float(g) - other.at(float(d))) ** 2 for d, g in zip(D[inside], gold[inside], strict=True)
        )


def test_too_few_points_are_refused() -> None:
    with pytest.raises(ValueError, match="2 points"):
        fit_form("rl", torch.tensor([0.0, 1.0, 2.0]), torch.tensor([0.0, 1.0, 2.0]))
