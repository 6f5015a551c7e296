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


NONE = float("nan")


def test_what_could_not_be_scored_is_in_no_baseline() -> None:
    # Of 1, -, 6, 2 the scored are 1, 6, 2: mean 3, unbiased variance 7. Of -, -, 4, - one is left, which has nothing
    # to be compared with. What stands at an unscored place is not read.
    scored_B = torch.tensor([True, False, True, True, False, False, True, False])
    expected = torch.tensor([-2.0, 0.0, 3.0, -1.0, 0.0, 0.0, 0.0, 0.0])
    for nothing in (NONE, 1e30, float("-inf")):
        rewards_B = torch.tensor([1.0, nothing, 6.0, 2.0, nothing, nothing, 4.0, nothing])
        torch.testing.assert_close(grpo_advantages(rewards_B, 4, scored_B=scored_B), expected / (7**0.5 + 1e-4))
        torch.testing.assert_close(grpo_advantages(rewards_B, 4, scale=False, scored_B=scored_B), expected)


def test_a_zero_in_the_place_of_a_missing_score_would_be_something_else() -> None:
    # Of 1, 0, 6, 2 the mean is 2.25: the two would differ.
    as_zero_B = grpo_advantages(torch.tensor([1.0, 0.0, 6.0, 2.0]), 4, scale=False)
    torch.testing.assert_close(as_zero_B, torch.tensor([-1.25, -2.25, 3.75, -0.25]))


def test_equal_rewards_among_unscored_ones_give_exact_zeros() -> None:
    rewards_B = torch.full((7,), 0.7)
    rewards_B[3] = NONE
    assert torch.equal(grpo_advantages(rewards_B, 7, scored_B=~rewards_B.isnan()), torch.zeros(7))
    none_B = torch.zeros(7, dtype=torch.bool)
    assert torch.equal(grpo_advantages(torch.full((7,), NONE), 7, scored_B=none_B), torch.zeros(7))
