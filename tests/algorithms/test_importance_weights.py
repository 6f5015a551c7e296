"""Importance weights, by hand and against what they are for."""

import math

import pytest
import torch

from holdfast.algorithms.importance import effective_count, importance_weights


@pytest.mark.parametrize(
    ("log_ratios", "power", "most", "expected"),
    [
        # Square roots of 1 and 4 are 1 and 2, their mean 3/2.
        ([0.0, math.log(4.0)], 0.5, 10.0, [2 / 3, 4 / 3]),
        # 1, 1, 10 with mean 4: .25 .25 2.5, cut to .25 .25 1.5, whose mean is 2/3.
        ([0.0, 0.0, math.log(10.0)], 1.0, 1.5, [0.375, 0.375, 2.25]),
        ([3.0, -40.0, 7.0], 0.0, 1.0, [1.0, 1.0, 1.0]),
        ([5.0, 5.0], 1.0, 10.0, [1.0, 1.0]),
        # Far beyond what exp can hold.
        ([1000.0, -1000.0], 1.0, 10.0, [2.0, 0.0]),
    ],
)
def test_by_hand(log_ratios: list[float], power: float, most: float, expected: list[float]) -> None:
    weights_P = importance_weights(torch.tensor(log_ratios), power, most)
    torch.testing.assert_close(weights_P, torch.tensor(expected))


def test_a_mean_over_one_policy_s_answers_becomes_one_over_the_other_s() -> None:
    """Four draws that are exactly mu = 1/2 1/4 1/4, weighed for pi = 1/4 1/2 1/4."""
    drawn, mu, pi = torch.tensor([0, 0, 1, 2]), torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0.25, 0.5, 0.25])
    weights_P = importance_weights((pi / mu).log()[drawn], 1.0, 100.0)
    of_answer = torch.tensor([3.0, -1.0, 10.0])
    torch.testing.assert_close((weights_P * of_answer[drawn]).mean(), (pi * of_answer).sum())


def test_what_weighted_labels_are_worth() -> None:
    assert effective_count(torch.ones(4)) == 4.0
    # (1 + 3)^2 / (1 + 9) = 1.6
    assert effective_count(torch.tensor([1.0, 3.0])) == pytest.approx(1.6)


@pytest.mark.parametrize(("power", "most"), [(-0.1, 2.0), (1.1, 2.0), (0.5, 0.9)])
def test_a_power_or_a_cap_that_means_nothing_is_refused(power: float, most: float) -> None:
    with pytest.raises(ValueError, match="power lies between 0 and 1"):
        importance_weights(torch.zeros(2), power, most)
