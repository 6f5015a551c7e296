"""The leave-one-out baseline."""

import pytest
import torch

from holdfast.algorithms.rloo import rloo_advantages


def test_by_hand() -> None:
    # Group 1, 2, 6: baselines (2+6)/2 = 4, (1+6)/2 = 3.5, (1+2)/2 = 1.5. Group 0, 0, 3: 1.5, 1.5, 0.
    advantages_B = rloo_advantages(torch.tensor([1.0, 2.0, 6.0, 0.0, 0.0, 3.0]), group_size=3)
    torch.testing.assert_close(advantages_B, torch.tensor([-3.0, -1.5, 4.5, -1.5, -1.5, 3.0]))


def test_equal_rewards_give_exact_zeros() -> None:
    # In float32 the mean of seven times 0.7 is not 0.7.
    assert torch.equal(rloo_advantages(torch.full((14,), 0.7), group_size=7), torch.zeros(14))


def test_impossible_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        rloo_advantages(torch.ones(4), group_size=1)
    with pytest.raises(ValueError, match="do not divide"):
        rloo_advantages(torch.ones(5), group_size=2)


def test_what_could_not_be_scored_is_in_no_baseline() -> None:
    # Of 1, -, 6, 2 the baselines are (6+2)/2 = 4, -, (1+2)/2 = 1.5, (1+6)/2 = 3.5. The 4 of the second group stands
    # alone; of the third, 3 and 5, each is the other's baseline.
    nothing = float("nan")
    rewards_B = torch.tensor([1.0, nothing, 6.0, 2.0, *[nothing] * 3, 4.0, nothing, 3.0, nothing, 5.0])
    advantages_B = rloo_advantages(rewards_B, 4, ~rewards_B.isnan())
    expected = torch.tensor([-3.0, 0.0, 4.5, -1.5, 0.0, 0.0, 0.0, 0.0, 0.0, -2.0, 0.0, 2.0])
    torch.testing.assert_close(advantages_B, expected)
