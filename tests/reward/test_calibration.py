"""Calibration figures against numbers worked out by hand."""

import pytest
import torch
from toy_preferences import toy_ensemble, toy_pairs

from holdfast.algorithms.calibration import Bin, brier, ece, reliability

# Five claims in three bins of ten: .05 and .08 | .62, .68 | 1.0
CLAIMED = torch.tensor([0.05, 0.08, 0.62, 0.68, 1.0], dtype=torch.float64)
CAME_TRUE = torch.tensor([0.0, 1.0, 1.0, 0.5, 1.0], dtype=torch.float64)


def test_brier_by_hand() -> None:
    # .0025 + .8464 + .1444 + .0324 + 0 = 1.0257 over 5
    assert brier(CLAIMED, CAME_TRUE) == pytest.approx(0.20514)
    assert brier(torch.full((4,), 0.5), torch.tensor([1.0, 0.0, 1.0, 0.0])) == pytest.approx(0.25)


def test_the_reliability_curve_by_hand_leaves_empty_bins_out() -> None:
    first, middle, last = reliability(CLAIMED, CAME_TRUE)
    assert (first.low, first.high, first.count) == pytest.approx((0.0, 0.1, 2))
    assert (first.claimed, first.observed) == pytest.approx((0.065, 0.5))
    assert (middle.low, middle.high, middle.count) == pytest.approx((0.6, 0.7, 2))
    assert (middle.claimed, middle.observed) == pytest.approx((0.65, 0.75))
    assert last == Bin(0.9, 1.0, 1, 1.0, 1.0), "a claim of 1 belongs to the last bin"


def test_ece_by_hand() -> None:
    # 2/5 x |.065 - .5| + 2/5 x |.65 - .75| + 1/5 x 0
    assert ece(CLAIMED, CAME_TRUE) == pytest.approx(0.4 * 0.435 + 0.4 * 0.1)
    # One bin: |mean claim - mean outcome| = |.486 - .7|
    assert ece(CLAIMED, CAME_TRUE, bins=1) == pytest.approx(0.214)


def test_nothing_to_measure() -> None:
    nothing = torch.zeros(0)
    assert reliability(nothing, nothing) == []
    assert ece(nothing, nothing) == 0.0
    assert toy_ensemble().claims([]).shape == (0,)


def test_claims_are_bradley_terry_on_raw_scores() -> None:
    ensemble, pairs = toy_ensemble(), toy_pairs(6)
    # Standardising must not matter: these units would change every claim.
    ensemble.means, ensemble.sds = (5.0, 5.0, 5.0), (9.0, 9.0, 9.0)
    prompts = [p.prompt for p in pairs]
    a_KP = ensemble.raw_scores(prompts, [p.a for p in pairs])
    b_KP = ensemble.raw_scores(prompts, [p.b for p in pairs])
    expected_P = 1 / (1 + torch.exp(-(a_KP - b_KP).mean(0)))
    torch.testing.assert_close(ensemble.claims(pairs), expected_P)
