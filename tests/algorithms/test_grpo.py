"""Group-relative advantages."""

import pytest
import torch

from holdfast.algorithms.grpo import grpo_advantages


def test_by_hand() -> None:
    # Group 1, 2, 6: mean 3, unbiased variance (4 + 1 + 9) / 2 = 7; divided by sqrt(7) + eps.
    divisor = 7**0.5 + 1e-4
    advantages_B = grpo_advantages(torch.tensor([1.0, 2.0, 6.0]), group_size=3)
    torch.testing.assert_close(advantages_B, torch.tensor([-2.0, -1.0, 3.0]) / divisor)


def test_without_scaling_only_the_mean_is_taken_off() -> None:
    advantages_B = grpo_advantages(torch.tensor([1.0, 2.0, 6.0, 5.0, 5.0, 8.0]), group_size=3, scale=False)
    torch.testing.assert_close(advantages_B, torch.tensor([-2.0, -1.0, 3.0, -1.0, -1.0, 2.0]))


@pytest.mark.parametrize("value", [0.0, 0.7, -1e6])
def test_a_constant_group_gives_exact_zeros(value: float) -> None:
    # In float32 the mean of seven times 0.7 is not 0.7.
    assert torch.equal(grpo_advantages(torch.full((7,), value), group_size=7), torch.zeros(7))


def test_impossible_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        grpo_advantages(torch.ones(4), group_size=1)
    with pytest.raises(ValueError, match="do not divide"):
        grpo_advantages(torch.ones(5), group_size=2)
