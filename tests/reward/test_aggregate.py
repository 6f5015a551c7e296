"""Aggregation of members' scores, by hand."""

import pytest
import torch

from holdfast.errors import HoldfastError
from holdfast.reward.aggregate import Aggregation, aggregate, bounded, spread

# Three members (rows), four answers (columns).
SCORES_KB = torch.tensor([[1.0, -3.0, 2.0, 0.0], [2.0, -1.0, -1.0, 4.0], [6.0, -2.0, 5.0, 5.0]])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("mean", [3.0, -2.0, 2.0, 3.0]),
        ("median", [2.0, -2.0, 2.0, 4.0]),
        ("worst", [1.0, -3.0, -1.0, 0.0]),
        # Population variances: (4+1+9)/3 = 4.667; (1+1+0)/3 = .667; (0+9+9)/3 = 6; (9+1+4)/3 = 4.667.
        # With lambda .3: 3 - 1.4, -2 - .2, 2 - 1.8, 3 - 1.4.
        ("uncertainty", [1.6, -2.2, 0.2, 1.6]),
        # All above 0: the least, 1. All below: the one nearest 0, -1. Both sides, or a 0 among them: 0.
        ("agreement", [1.0, -1.0, 0.0, 0.0]),
    ],
)
def test_by_hand(kind: Aggregation, expected: list[float]) -> None:
    torch.testing.assert_close(aggregate(SCORES_KB, kind, 0.3), torch.tensor(expected))


def test_the_median_of_an_even_number_is_between_the_middle_two() -> None:
    assert aggregate(torch.tensor([[1.0], [2.0], [4.0], [100.0]]), "median").tolist() == [3.0]


@pytest.mark.parametrize("kind", ["mean", "median", "worst", "uncertainty", "agreement"])
def test_one_member_is_its_own_opinion_and_never_disagrees(kind: Aggregation) -> None:
    scores_1B = torch.tensor([[1.5, -2.0, 0.0]])
    assert aggregate(scores_1B, kind, 0.7).tolist() == [1.5, -2.0, 0.0]
    assert spread(scores_1B).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("kind", ["mean", "median", "worst", "uncertainty", "agreement"])
def test_the_order_of_members_does_not_matter_and_answers_do_not_mix(kind: Aggregation) -> None:
    expected_B = aggregate(SCORES_KB, kind, 0.3)
    torch.testing.assert_close(aggregate(SCORES_KB.flip(0), kind, 0.3), expected_B)
    torch.testing.assert_close(aggregate(SCORES_KB[:, :2], kind, 0.3), expected_B[:2])


def test_what_no_member_agrees_on_is_never_more_than_the_mean() -> None:
    scores_KB = torch.randn(5, 200, generator=torch.Generator().manual_seed(0))
    mean_B = aggregate(scores_KB, "mean")
    assert bool((aggregate(scores_KB, "agreement").abs() <= mean_B.abs() + 1e-6).all())
    assert bool((aggregate(scores_KB, "worst") <= mean_B).all())
    assert bool((aggregate(scores_KB, "uncertainty", 0.5) <= mean_B).all())


def test_averaged_is_what_the_one_member_says_and_several_were_never_averaged() -> None:
    assert aggregate(SCORES_KB[1:2], "averaged").tolist() == SCORES_KB[1].tolist()
    with pytest.raises(HoldfastError, match="has 3 members, which were not averaged"):
        aggregate(SCORES_KB, "averaged")


def test_spread_is_the_standard_deviation_over_members() -> None:
    # sqrt(14/3), sqrt(2/3), sqrt(6), sqrt(14/3)
    torch.testing.assert_close(spread(SCORES_KB), torch.tensor([2.16025, 0.81650, 2.44949, 2.16025]))


def test_bounded_by_hand() -> None:
    # sigmoid(0) = 1/2; sigmoid(2 - 1) = .73106; sigmoid(-1 - 1) = .11920; far out it stays within 0 and 1.
    rewards_B = bounded(torch.tensor([1.0, 2.0, -1.0, 1e4]), torch.tensor([1.0, 1.0, 1.0, 0.0]))
    torch.testing.assert_close(rewards_B, torch.tensor([0.5, 0.73106, 0.11920, 1.0]), atol=1e-5, rtol=0)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="best"):
        aggregate(SCORES_KB, "best")  # type: ignore[arg-type]
