"""GAE by hand and against its definition as a double sum."""

import pytest
import torch

from holdfast.algorithms.gae import gae


def test_by_hand() -> None:
    # gamma 1, lambda 0.95. delta: 0 + 0.4 - 0.5 = -0.1; 0 + 0.6 - 0.4 = 0.2; 1 + 0 - 0.6 = 0.4.
    # A2 = 0.4; A1 = 0.2 + 0.95 * 0.4 = 0.58; A0 = -0.1 + 0.95 * 0.58 = 0.451. R = A + V.
    advantages, returns = gae(
        torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[0.5, 0.4, 0.6]]), torch.ones(1, 3), 1.0, 0.95
    )
    torch.testing.assert_close(advantages, torch.tensor([[0.451, 0.58, 0.4]]))
    torch.testing.assert_close(returns, torch.tensor([[0.951, 0.98, 1.0]]))


def _definition(
    rewards: list[float], values: list[float], gamma: float, lam: float
) -> list[float]:  # A_t = sum_l (gamma lam)^l delta_{t+l}
    padded = [*values, 0.0]
    deltas = [r + gamma * padded[t + 1] - padded[t] for t, r in enumerate(rewards)]
    return [sum((gamma * lam) ** (s - t) * deltas[s] for s in range(t, len(rewards))) for t in range(len(rewards))]


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 0.95), (0.9, 0.8), (1.0, 0.0), (0.97, 1.0)])
def test_against_the_double_sum_on_right_padded_rows(gamma: float, lam: float) -> None:
    generator = torch.Generator().manual_seed(0)
    lengths = [6, 1, 4]
    rewards_BT, values_BT = torch.randn(2, 3, 6, generator=generator, dtype=torch.float64)
    mask_BT = torch.tensor([[t < n for t in range(6)] for n in lengths])
    advantages_BT, returns_BT = gae(rewards_BT, values_BT, mask_BT, gamma, lam)
    for b, n in enumerate(lengths):
        expected = torch.tensor(
            _definition(rewards_BT[b, :n].tolist(), values_BT[b, :n].tolist(), gamma, lam),
            dtype=torch.float64,
        )
        torch.testing.assert_close(advantages_BT[b, :n], expected)
        torch.testing.assert_close(returns_BT[b, :n], expected + values_BT[b, :n])
        assert advantages_BT[b, n:].abs().sum().item() == 0.0
        assert returns_BT[b, n:].abs().sum().item() == 0.0


def test_padding_cannot_leak_in() -> None:
    mask_BT = torch.tensor([[1.0, 1.0, 0.0, 0.0]])
    clean = gae(torch.tensor([[1.0, 2.0, 0.0, 0.0]]), torch.tensor([[0.3, 0.1, 0.0, 0.0]]), mask_BT, 1.0, 0.9)
    dirty = gae(
        torch.tensor([[1.0, 2.0, 7.0, float("nan")]]),
        torch.tensor([[0.3, 0.1, 9.0, float("inf")]]),
        mask_BT,
        1.0,
        0.9,
    )
    for one, other in zip(clean, dirty, strict=True):
        assert torch.equal(one, other)


def test_a_mask_that_starts_late_leaves_the_prompt_at_zero() -> None:
    # The two response tokens alone: A1 = 1 - 0.6 = 0.4, A0 = 0.6 - 0.4 + 0.5 * 0.4 = 0.4.
    advantages_BT, returns_BT = gae(
        torch.tensor([[5.0, 0.0, 1.0, 0.0]]),
        torch.tensor([[5.0, 0.4, 0.6, 0.0]]),
        torch.tensor([[0, 1, 1, 0]]),
        1.0,
        0.5,
    )
    torch.testing.assert_close(advantages_BT, torch.tensor([[0.0, 0.4, 0.4, 0.0]]))
    torch.testing.assert_close(returns_BT, torch.tensor([[0.0, 0.8, 1.0, 0.0]]))


def test_targets_carry_no_gradient() -> None:
    values_BT = torch.zeros(1, 2, requires_grad=True)
    advantages_BT, returns_BT = gae(torch.ones(1, 2), values_BT, torch.ones(1, 2), 1.0, 1.0)
    assert not advantages_BT.requires_grad
    assert not returns_BT.requires_grad
