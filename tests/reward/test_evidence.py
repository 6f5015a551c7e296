"""The gate's statistics against tables, closed forms and numbers worked out by hand."""

import math

import pytest
import torch

from holdfast.algorithms.calibration import ece
from holdfast.reward.evidence import (
    Stance,
    accuracy_change,
    columns,
    ece_resampled,
    gain,
    logistic,
    mean_and_error,
    resamples,
)


def _opinion(old: float, new: float | None, share: float = 1.0) -> Stance:
    return Stance(round=0, share=share, old=old, new=new)


def test_a_change_of_accuracy_by_hand() -> None:
    """Ten labels: 5 right before and after, 4 lost, 1 won; a tie and a label that the candidate knows are left out."""
    labels = [
        *[_opinion(1.0, 2.0)] * 5, *[_opinion(1.0, -1.0)] * 4, _opinion(-1.0, 1.0),
        _opinion(1.0, -1.0, share=0.5), _opinion(1.0, None),
    ]  # fmt: skip
    change = accuracy_change(labels)
    assert (change.pairs, change.loss) == (10, pytest.approx(0.3))
    # Of 5 that differ, 4 or more lost: (5 + 1) / 32; 1 or more won: 31 / 32.
    assert change.worse == pytest.approx(6 / 32)
    assert change.error == pytest.approx(math.sqrt(7 / 12 / 10))


def test_the_second_side_counts_alike() -> None:
    change = accuracy_change([_opinion(-1.0, 1.0, share=0.0), _opinion(-1.0, -2.0, share=0.2)])
    assert (change.loss, change.pairs) == (0.5, 2)


def test_a_few_labels_without_a_change_prove_nothing() -> None:
    change = accuracy_change([_opinion(1.0, 1.0)] * 5)
    assert (change.loss, change.worse) == (0.0, 1.0)
    assert change.error > 0.2
    assert accuracy_change([]).worse == 1.0


def test_columns_are_claims() -> None:
    old_P, new_P, share_P = columns([_opinion(0.0, math.log(3.0)), _opinion(1.0, None)])
    assert (old_P.tolist(), share_P.tolist()) == ([0.5], [1.0])
    assert new_P.tolist() == pytest.approx([0.75])


def test_mean_and_error_by_hand() -> None:
    # sd of 1, 2, 3 is 1
    assert mean_and_error(torch.tensor([1.0, 2.0, 3.0])) == pytest.approx((2.0, 1 / math.sqrt(3)))


def test_the_resampled_calibration_error_of_all_pairs_is_the_calibration_error() -> None:
    rng = torch.Generator().manual_seed(1)
    claim_P, outcome_P = torch.rand(50, generator=rng).double(), (torch.rand(50, generator=rng) < 0.5).double()
    (found,) = ece_resampled(claim_P, outcome_P, torch.arange(50)[None]).tolist()
    assert found == pytest.approx(ece(claim_P, outcome_P))
    assert torch.equal(resamples(50), resamples(50))


def test_logistic_without_a_prior_has_the_closed_form() -> None:
    """One feature that is always 1: the weight is the log-odds, its variance 1 / (n p (1 - p))."""
    share_P = torch.tensor([1.0] * 30 + [0.0] * 10, dtype=torch.float64)
    weights_F, covariance_FF = logistic(torch.ones(40, 1, dtype=torch.float64), share_P, ridge=0.0)
    assert float(weights_F[0]) == pytest.approx(math.log(3.0))
    assert float(covariance_FF[0, 0]) == pytest.approx(1 / (40 * 0.75 * 0.25))


def test_logistic_finds_the_weights_that_made_the_labels() -> None:
    rng = torch.Generator().manual_seed(0)
    features_PF = torch.randn(20000, 2, generator=rng, dtype=torch.float64)
    p_P = torch.sigmoid(features_PF @ torch.tensor([0.7, -1.5], dtype=torch.float64))
    share_P = (torch.rand(20000, generator=rng, dtype=torch.float64) < p_P).double()
    weights_F, covariance_FF = logistic(features_PF, share_P, ridge=0.1)
    errors_F = covariance_FF.diagonal().sqrt()
    assert bool(((weights_F - torch.tensor([0.7, -1.5])).abs() < 3 * errors_F).all())
    assert float(errors_F.max()) < 0.04


def test_a_feature_that_explains_everything_has_a_finite_weight() -> None:
    feature_P1 = torch.tensor([[1.0], [-1.0]] * 50, dtype=torch.float64)
    weights_F, covariance_FF = logistic(feature_P1, (feature_P1[:, 0] > 0).double(), ridge=1.0)
    assert 2.0 < float(weights_F[0]) < 6.0
    assert math.isfinite(float(covariance_FF[0, 0]))


def test_a_gain_by_hand() -> None:
    """Old opinions 3 and -4 of labels 1 and 0: rms sqrt(12.5), both in step. The new ones are -1 and -1: one is."""
    labels = [_opinion(3.0, -1.0), _opinion(-4.0, -1.0, share=0.0)]
    found = gain(labels)
    assert found is not None
    rms = math.sqrt(12.5)
    first, second = -1.0 - 3.0 / rms, 1.0 - 4.0 / rms
    assert found == pytest.approx(((first + second) / 2, abs(first - second) / math.sqrt(2) / math.sqrt(2)))
    # However firmly they are held on the whole.
    firm = [_opinion(30.0, -7.0), _opinion(-40.0, -7.0, share=0.0)]
    assert gain(firm) == pytest.approx(found)
    assert gain([_opinion(1.0, None), _opinion(1.0, 2.0)]) is None
