"""The Bradley-Terry loss, by hand and by its gradient."""

import math

import pytest
import torch

from holdfast.algorithms.bradley_terry import bradley_terry_loss, pair_accuracy, win_probability


def _log_sigmoid(x: float) -> float:
    return -math.log1p(math.exp(-x))


def test_plain_loss_by_hand() -> None:
    # Differences 1 and -0.5: -log sigma(1) = 0.313262, -log sigma(-0.5) = 0.974077; mean 0.643669.
    loss = bradley_terry_loss(torch.tensor([2.0, 0.0]), torch.tensor([1.0, 0.5]))
    assert loss.item() == pytest.approx(0.643669, abs=1e-6)


def test_margin_smoothing_and_centring_by_hand() -> None:
    # d - m = 1.5 - 0.5 = 1. 0.9 * 0.313262 + 0.1 * 1.313262 = 0.413262; centring 0.01 * (2 + 0.5)^2 = 0.0625.
    arguments = torch.tensor([2.0]), torch.tensor([0.5])
    loss = bradley_terry_loss(*arguments, margin=0.5, label_smoothing=0.1, centring=0.01)
    assert loss.item() == pytest.approx(0.413262 + 0.0625, abs=1e-6)
    per_pair = bradley_terry_loss(*arguments, margin=torch.tensor([0.5]), label_smoothing=0.1, centring=0.01)
    assert per_pair.item() == loss.item()


def test_shares_are_soft_targets() -> None:
    # Three of four people preferred the first: 0.75 * 0.313262 + 0.25 * 1.313262 = 0.563262.
    loss = bradley_terry_loss(torch.tensor([1.0]), torch.tensor([0.0]), share_P=torch.tensor([0.75]))
    assert loss.item() == pytest.approx(0.563262, abs=1e-6)
    # With smoothing 0.2 the target is 0.75 * 0.8 + 0.25 * 0.2 = 0.65.
    smooth = bradley_terry_loss(
        torch.tensor([1.0]), torch.tensor([0.0]), label_smoothing=0.2, share_P=torch.tensor([0.75])
    )
    assert smooth.item() == pytest.approx(-0.65 * _log_sigmoid(1) - 0.35 * _log_sigmoid(-1), abs=1e-6)


def test_a_share_and_its_complement_are_the_same_question_with_sides_exchanged() -> None:
    a_P, b_P, share_P = torch.tensor([0.3, 2.0]), torch.tensor([-1.0, 2.5]), torch.tensor([0.2, 0.9])
    one = bradley_terry_loss(a_P, b_P, label_smoothing=0.1, share_P=share_P)
    other = bradley_terry_loss(b_P, a_P, label_smoothing=0.1, share_P=1 - share_P)
    torch.testing.assert_close(one, other)


def test_the_gradient_vanishes_where_the_model_agrees_with_the_shares() -> None:
    # The loss is least where sigma(d) equals the target: a tie (share 0.5) pulls the two scores together.
    chosen_P = torch.tensor([0.7, 0.7], requires_grad=True)
    rejected_P = torch.tensor([0.7, 0.7 - math.log(3)])  # sigma(log 3) = 0.75
    loss = bradley_terry_loss(chosen_P, rejected_P, share_P=torch.tensor([0.5, 0.75]))
    (gradient_P,) = torch.autograd.grad(loss, chosen_P)
    torch.testing.assert_close(gradient_P, torch.zeros(2), atol=1e-6, rtol=0)


def test_gradient_by_finite_differences() -> None:
    generator = torch.Generator().manual_seed(0)
    chosen_P = torch.randn(5, generator=generator, dtype=torch.float64, requires_grad=True)
    rejected_P = torch.randn(5, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: bradley_terry_loss(a, b, 0.3, 0.1, 0.05), (chosen_P, rejected_P))


def test_extreme_differences_stay_finite() -> None:
    loss = bradley_terry_loss(torch.tensor([-1e4]), torch.tensor([1e4]), label_smoothing=0.1)
    assert loss.item() == pytest.approx(0.9 * 2e4, rel=1e-5)


def test_smoothing_past_one_half_is_refused() -> None:
    with pytest.raises(ValueError, match=r"between 0 and 0\.5"):
        bradley_terry_loss(torch.zeros(1), torch.zeros(1), label_smoothing=0.6)


def test_win_probability_and_accuracy() -> None:
    assert win_probability(torch.tensor(math.log(3)), torch.tensor(0.0)).item() == pytest.approx(0.75)
    # Right, wrong, equal: (1 + 0 + 0.5) / 3.
    accuracy = pair_accuracy(torch.tensor([2.0, 1.0, 5.0]), torch.tensor([1.0, 3.0, 5.0]))
    assert accuracy.item() == pytest.approx(0.5)


def test_a_pair_of_half_the_weight_has_half_the_say():
    # -log sigma(1) = 0.3133 and -log sigma(-0.5) = 0.9741; (0.3133 + 0.9741 / 2) / 2 = 0.4002
    chosen, rejected = torch.tensor([2.0, 0.0]), torch.tensor([1.0, 0.5])
    loss = bradley_terry_loss(chosen, rejected, weight_P=torch.tensor([1.0, 0.5]))
    assert float(loss) == pytest.approx(0.4002, abs=1e-4)
    whole = bradley_terry_loss(chosen, rejected, centring=0.3, weight_P=torch.ones(2))
    assert float(whole) == pytest.approx(float(bradley_terry_loss(chosen, rejected, centring=0.3)))
