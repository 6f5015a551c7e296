"""PPO: rewards, policy loss and value loss, by hand, by gradient, and across micro-batches."""

import math

import pytest
import torch

from holdfast.algorithms.ppo import (
    LossMean,
    kl_penalised_rewards,
    loss_divisor,
    ppo_policy_loss,
    ppo_value_loss,
    token_weights,
)


def _random(shape: tuple[int, int], seed: int = 0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    old = -torch.rand(shape, generator=generator, dtype=torch.float64) * 3
    new = old + 0.4 * torch.randn(shape, generator=generator, dtype=torch.float64)
    advantages = torch.randn(shape, generator=generator, dtype=torch.float64)
    lengths = torch.randint(1, shape[1] + 1, (shape[0], 1), generator=generator)
    return new, old, advantages, torch.arange(shape[1]) < lengths


def test_rewards_by_hand() -> None:
    # beta 0.1: -0.1 * kl everywhere, and the score on the last response token of each row.
    rewards_BT = kl_penalised_rewards(
        torch.tensor([2.0, -1.0]),
        torch.tensor([[1.0, 2.0, 99.0], [0.5, -1.0, 3.0]]),
        torch.tensor([[1, 1, 0], [1, 1, 1]]),
        beta=0.1,
    )
    torch.testing.assert_close(rewards_BT, torch.tensor([[-0.1, 1.8, 0.0], [-0.05, 0.1, -1.3]]))


def test_the_score_stands_on_the_last_token_that_was_free() -> None:
    # The second answer's last token had to come, and of the third one nothing was free.
    kl_BT = torch.tensor([[1.0, 9.0, 2.0], [9.0, 1.0, 9.0], [9.0, 9.0, 9.0]])
    mask_BT = torch.tensor([[1, 0, 1], [0, 1, 0], [0, 0, 0]])
    rewards_BT = kl_penalised_rewards(torch.tensor([2.0, 3.0, 4.0]), kl_BT, mask_BT, beta=0.1)
    torch.testing.assert_close(rewards_BT, torch.tensor([[-0.1, 0.0, 1.8], [0.0, 2.9, 0.0], [0.0, 0.0, 4.0]]))


def test_policy_loss_and_stats_by_hand() -> None:
    # clip 0.2.  rho A: 1.5 * 1 -> held at 1.2;  0.5 * -1 -> held at -0.8;  1.1 * 2 = 2.2 is inside;
    # 1.5 * -1 = -1.5 is below its held value -1.2 and stays.
    # The sum is 1.2 - 0.8 + 2.2 - 1.5 = 1.1, so L = -1.1 / 4.
    ratios = [1.5, 0.5, 1.1, 1.5]
    old_BT = torch.full((1, 5), -2.0)
    new_BT = old_BT + torch.tensor([[*[math.log(r) for r in ratios], 7.0]])
    advantages_BT = torch.tensor([[1.0, -1.0, 2.0, -1.0, 50.0]])
    mask_BT = torch.tensor([[1, 1, 1, 1, 0]])
    loss, stats = ppo_policy_loss(new_BT, old_BT, advantages_BT, mask_BT, clip=0.2, token_count=4)
    assert loss.item() == pytest.approx(-0.275, abs=1e-6)
    assert stats.tokens.item() == 4
    assert stats.clipped.item() == 2
    assert stats.clip_fraction.item() == 0.5
    assert stats.ratio.item() == pytest.approx(4.6, abs=1e-5)
    assert stats.mean_ratio.item() == pytest.approx(1.15, abs=1e-5)
    # k3 of KL(old || new) is rho - 1 - log rho: 0.0945 + 0.1931 + 0.0047 + 0.0945.
    kl = sum(r - 1 - math.log(r) for r in ratios)
    assert kl == pytest.approx(0.38686, abs=1e-4)
    assert stats.kl.item() == pytest.approx(kl, abs=1e-5)
    assert stats.mean_kl.item() == pytest.approx(kl / 4, abs=1e-5)


def test_policy_gradient_in_closed_form() -> None:
    # dL/dlogp = -rho A / N where the clip does not bind, and 0 where it does or outside the mask.
    new_BT, old_BT, advantages_BT, mask_BT = _random((6, 9))
    new_BT.requires_grad_(True)
    count = float(mask_BT.sum())
    loss, stats = ppo_policy_loss(new_BT, old_BT, advantages_BT, mask_BT, 0.2, count)
    (gradient_BT,) = torch.autograd.grad(loss, new_BT)
    ratio_BT = (new_BT - old_BT).exp().detach()
    held_BT = ((ratio_BT > 1.2) & (advantages_BT > 0)) | ((ratio_BT < 0.8) & (advantages_BT < 0))
    expected_BT = torch.where(mask_BT & ~held_BT, -ratio_BT * advantages_BT / count, 0.0)
    torch.testing.assert_close(gradient_BT, expected_BT)
    assert 0 < stats.clipped.item() == (held_BT & mask_BT).sum().item()


def test_policy_gradient_by_finite_differences() -> None:
    new_BT, old_BT, advantages_BT, mask_BT = _random((2, 4), seed=4)
    new_BT.requires_grad_(True)
    assert torch.autograd.gradcheck(lambda x: ppo_policy_loss(x, old_BT, advantages_BT, mask_BT, 0.2, 5.0)[0], new_BT)


def test_micro_batches_add_up_to_the_token_mean_of_the_minibatch() -> None:
    new_BT, old_BT, advantages_BT, mask_BT = _random((8, 7), seed=2)
    new_BT.requires_grad_(True)
    count = int(mask_BT.sum())
    whole, whole_stats = ppo_policy_loss(new_BT, old_BT, advantages_BT, mask_BT, 0.2, count)
    (whole_gradient,) = torch.autograd.grad(whole, new_BT)
    # Buckets of unlike size, each trimmed to its own longest row, as the trainer makes them.
    parts, stats, order = [], None, mask_BT.sum(1).argsort()
    for rows in (order[:3], order[3:5], order[5:]):
        width = int(mask_BT[rows].sum(1).max())
        loss, part = ppo_policy_loss(*(x[rows, :width] for x in (new_BT, old_BT, advantages_BT, mask_BT)), 0.2, count)
        parts.append(loss)
        stats = part if stats is None else stats + part
    (gradient,) = torch.autograd.grad(torch.stack(parts).sum(), new_BT)
    torch.testing.assert_close(torch.stack(parts).sum(), whole)
    torch.testing.assert_close(gradient, whole_gradient)
    assert stats is not None
    for name in ("tokens", "clipped", "kl", "ratio"):
        torch.testing.assert_close(getattr(stats, name), getattr(whole_stats, name))


def test_a_ratio_explosion_of_5e8_and_more_stays_finite() -> None:
    old_BT = torch.tensor([[-25.0, -300.0, -1.0, -1.0]])
    new_BT = torch.tensor([[-0.1, -0.1, -400.0, -1.0]], requires_grad=True)
    for sign in (1.0, -1.0):
        loss, stats = ppo_policy_loss(new_BT, old_BT, torch.full((1, 4), sign), torch.ones(1, 4), 0.2, 4)
        (gradient,) = torch.autograd.grad(loss, new_BT)
        assert math.isfinite(loss.item())
        assert torch.isfinite(gradient).all()
        assert gradient[0, 3].item() == pytest.approx(-sign / 4)  # the sane token still learns
        assert all(math.isfinite(x.item()) for x in (stats.kl, stats.ratio, stats.clipped))
        assert stats.mean_ratio.item() > 1e8  # and the explosion shows


def test_nan_outside_the_mask_reaches_neither_loss_nor_gradient() -> None:
    nan = float("nan")
    mask_BT = torch.tensor([[1, 0, 0]])
    new_BT = torch.tensor([[-1.0, nan, -torch.inf]], requires_grad=True)
    loss, stats = ppo_policy_loss(
        new_BT, torch.tensor([[-1.0, nan, -torch.inf]]), torch.tensor([[1.0, nan, 1.0]]), mask_BT, 0.2, 1
    )
    values_BT = torch.tensor([[1.0, nan, torch.inf]], requires_grad=True)
    value_loss = ppo_value_loss(values_BT, torch.tensor([[1.0, nan, 0.0]]), torch.zeros(1, 3), mask_BT, 0.2, 1)
    gradients = torch.autograd.grad(loss + value_loss, (new_BT, values_BT))
    assert loss.item() == -1.0
    assert value_loss.item() == 0.5
    assert stats.ratio.item() == 1.0
    assert torch.equal(gradients[0], torch.tensor([[-1.0, 0.0, 0.0]]))
    assert torch.equal(gradients[1], torch.tensor([[1.0, 0.0, 0.0]]))


def test_value_loss_by_hand() -> None:
    # clip 0.2. V 1.0 from old 0.5, target 1.0: free error 0, held at 0.7 -> 0.3^2 = 0.09 counts.
    # V 0.6 from 0.5, target 0: inside, 0.36. V 2.0 from 0.5, target 1: free 1, held (0.7 - 1)^2; 1 counts.
    # 0.5 * (0.09 + 0.36 + 1) / 3 = 0.241667.
    loss = ppo_value_loss(
        torch.tensor([[1.0, 0.6, 2.0, 9.0]]),
        torch.full((1, 4), 0.5),
        torch.tensor([[1.0, 0.0, 1.0, 0.0]]),
        torch.tensor([[1, 1, 1, 0]]),
        clip=0.2,
        token_count=3,
    )
    assert loss.item() == pytest.approx(0.241667, abs=1e-6)


def test_value_gradient_by_finite_differences_and_across_micro_batches() -> None:
    values_BT, old_BT, returns_BT, mask_BT = _random((4, 5), seed=3)
    values_BT.requires_grad_(True)
    assert torch.autograd.gradcheck(lambda x: ppo_value_loss(x, old_BT, returns_BT, mask_BT, 0.2, 9.0), values_BT)
    whole = ppo_value_loss(values_BT, old_BT, returns_BT, mask_BT, 0.2, 9.0)
    halves = [
        ppo_value_loss(*(x[rows] for x in (values_BT, old_BT, returns_BT, mask_BT)), 0.2, 9.0)
        for rows in (slice(0, 1), slice(1, 4))
    ]
    torch.testing.assert_close(halves[0] + halves[1], whole)


# Two answers, of 1 and 3 tokens, at ratio 1, with advantage 2 and -1 on every token.
LENGTHS = [1, 3]
ADVANTAGES_N = torch.tensor([2.0, -1.0, -1.0, -1.0])


@pytest.mark.parametrize(
    ("mean", "loss"),
    [
        ("token", 0.25),  # -(2 - 3) / 4 tokens
        ("answer", -0.5),  # -(2/1 + -3/3) / 2 answers
        ("length", 0.05),  # -(2 - 3) / (2 answers of at most 10 tokens)
    ],
)
def test_what_the_loss_is_a_mean_of_by_hand(mean: LossMean, loss: float) -> None:
    zeros_N, ones_N = torch.zeros(4), torch.ones(4)
    divisor, weights_N = loss_divisor(mean, LENGTHS, 10), token_weights(mean, LENGTHS)
    whole, _ = ppo_policy_loss(zeros_N, zeros_N, ADVANTAGES_N, ones_N, 0.2, divisor, 0.0, weights_N)
    assert whole.item() == pytest.approx(loss, abs=1e-7)
    # One answer to a micro-batch: with the minibatch's divisor they add up to the same.
    parts = []
    for rows, lengths in ((slice(0, 1), [1]), (slice(1, 4), [3])):
        some = zeros_N[rows], zeros_N[rows], ADVANTAGES_N[rows], ones_N[rows]
        parts.append(ppo_policy_loss(*some, 0.2, divisor, 0.0, token_weights(mean, lengths))[0])
    assert sum(part.item() for part in parts) == pytest.approx(loss, abs=1e-7)


def test_a_constant_length_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, not 0"):
        loss_divisor("length", LENGTHS, 0)


def test_clip_higher_by_hand() -> None:
    # clip 0.2 and 0.28. A good token may rise to 1.28: 1.25 is inside, 1.5 is held. A bad one is held at 0.8 below
    # all the same: 0.75 * -1 is held at -0.8. The sum is 1.25 + 1.28 - 0.8 = 1.73; with one clip for both it is
    # 1.2 + 1.2 - 0.8 = 1.6.
    new_BT = torch.tensor([[math.log(r) for r in (1.25, 1.5, 0.75)]])
    advantages_BT, ones_BT = torch.tensor([[1.0, 1.0, -1.0]]), torch.ones(1, 3)
    for clip_high, expected, clipped in ((0.28, 1.73, 2), (0.0, 1.6, 3), (0.2, 1.6, 3)):
        loss, stats = ppo_policy_loss(new_BT, 0 * ones_BT, advantages_BT, ones_BT, 0.2, 1, clip_high)
        assert loss.item() == pytest.approx(-expected, abs=1e-6)
        assert stats.clipped.item() == clipped
