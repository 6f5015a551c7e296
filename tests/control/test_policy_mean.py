"""The mean of the last policies, against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from holdfast.control.policy_mean import PolicyMean


def policy(weight: float, steps: int) -> dict[str, Tensor]:
    return {"weight": torch.tensor([weight, 2 * weight]), "steps": torch.tensor(steps)}


def after(averaging: PolicyMean, *weights: float) -> PolicyMean:
    for n, weight in enumerate(weights):
        averaging.add(policy(weight, n))
    return averaging


def test_every_policy_counts_the_same() -> None:
    mean = after(PolicyMean(8, 4), 1.0, 5.0, 9.0).mean_with(policy(13.0, 7))
    torch.testing.assert_close(mean["weight"], torch.tensor([7.0, 14.0]))
    assert int(mean["steps"]) == 7, "a count is as the newest has it"


@pytest.mark.parametrize(
    ("rounds", "last", "wanted"),
    [(8, 4, [5, 6, 7]), (8, 1, []), (30, 4, [27, 28, 29]), (4, 4, [3]), (3, 4, []), (1, 4, [])],
)
def test_of_short_runs_at_most_half_of_the_rounds_count(rounds: int, last: int, wanted: list[int]) -> None:
    averaging = PolicyMean(rounds, last)
    assert [round for round in range(1, rounds + 1) if averaging.wants(round)] == wanted


def test_only_the_last_round_ends_in_the_mean_and_only_where_there_is_one() -> None:
    averaging = PolicyMean(4, 2)
    assert not averaging.ends_in_mean(4)
    after(averaging, 1.0)
    assert [averaging.ends_in_mean(round) for round in (3, 4, 5)] == [False, True, False]


def test_what_is_kept_does_not_move_with_the_policy() -> None:
    averaging, live = PolicyMean(8, 4), policy(1.0, 1)
    averaging.add(live)
    live["weight"].mul_(100)
    torch.testing.assert_close(averaging.mean_with(policy(3.0, 2))["weight"], torch.tensor([2.0, 4.0]))


def test_it_goes_on_from_its_state() -> None:
    one, other = after(PolicyMean(8, 4), 1.0, 5.0), PolicyMean(8, 4)
    other.restore(one.state())
    assert other.policies == 2
    torch.testing.assert_close(other.mean_with(policy(9.0, 1)), one.mean_with(policy(9.0, 1)))
    other.restore({})
    assert (other.policies, other.state()) == (0, {})
