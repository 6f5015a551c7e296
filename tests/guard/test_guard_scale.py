"""What a difference in reward is worth to people, by hand and over many simulated runs."""

from __future__ import annotations

import math

import pytest
import torch

from holdfast.guard.claimant import PairScores, ScalarClaimant
from holdfast.guard.claims import UNCLAIMED, Granted, held_against
from holdfast.guard.scale import ENOUGH, HAIR, WIDTH, Scale, sigmoid, slope_of
from holdfast.preferences.pair import Pair
from holdfast.randomness import generator


def test_by_hand() -> None:
    # All differences are 1, so the mode solves n w = n sigma(k) + k / W^2; with 60 wins of 80 and W = 4:
    # k = log 3 = 1.0986 without the prior; with it 60 - 80 sigma(k) - k / 16 = 0, one Newton step from log 3:
    # k = 1.0986 - (0.06866) / (80 x 0.1875 + 0.0625) = 1.0986 - 0.00456 = 1.0941
    slope = slope_of([(1.0, 1.0)] * 60 + [(1.0, 0.0)] * 20)
    assert slope.value == pytest.approx(1.0941, abs=1e-4)
    # The curvature there is 80 x 0.74914 x 0.25086 + 1/16 = 15.097, whose inverse root is 0.25737.
    assert slope.sd == pytest.approx(0.25737, abs=1e-4)


def test_the_unit_of_the_reward_decides_nothing() -> None:
    small, large = Scale(), Scale()
    told = [(0.01 * d, float(d > 0)) for d in (3, -2, 4, 1, -5, 2)] * 10 + [(0.02, 0.0)] * 5
    small.add(*zip(*told, strict=True))
    large.add([1000 * d for d, _ in told], [y for _, y in told])
    assert small.claims([0.01, -0.03]) == pytest.approx(large.claims([10.0, -30.0]))


def test_exchanging_the_sides_exchanges_the_claim() -> None:
    scale = Scale()
    scale.add([1.0] * 60, [1.0] * 50 + [0.0] * 10)
    one, other = scale.claims([0.7, -0.7])
    assert one + other == pytest.approx(1.0)
    assert one > 0.5


@pytest.mark.parametrize(
    ("differences", "outcomes"),
    [
        ([], []),
        ([1.0] * (ENOUGH - 1), [1.0] * (ENOUGH - 1)),  # too few
        ([1.0] * 80, [1.0, 0.0] * 40),  # people do not follow the reward
        ([1.0] * 80, [0.0] * 60 + [1.0] * 20),  # they like the opposite
        ([0.0] * 80, [1.0] * 80),  # the reward does not tell the sides apart
        ([math.nan] * 80, [1.0] * 80),  # a side was not scored
        ([1.0] * 80, [0.5] * 80),  # ties decide nothing
    ],
)
def test_nothing_is_claimed_without_audits_that_say_so(differences: list[float], outcomes: list[float]) -> None:
    scale = Scale()
    scale.add(differences, outcomes)
    assert not scale.ready
    assert scale.claims([5.0, -5.0, 0.0]) == [0.5 + HAIR, 0.5 - HAIR, 0.5]


def test_claims_do_not_exceed_what_people_grant() -> None:
    """With the slope's lower end, the mean claim over fresh pairs is above the truth in few of many simulated runs."""
    rng, truth, too_much, ready = generator(7, "scale"), 0.8, 0, 0
    for _ in range(200):
        told = torch.randn(120, generator=rng)
        won = (torch.rand(120, generator=rng) < torch.sigmoid(truth * told)).float()
        scale = Scale()
        scale.add(told.tolist(), won.tolist())
        if scale.ready:
            ready += 1
            fresh = (torch.randn(400, generator=rng) + 0.5).tolist()
            granted = sum(sigmoid(truth * d) for d in fresh) / len(fresh)
            too_much += sum(scale.claims(fresh)) / len(fresh) > granted
    assert ready > 150
    assert too_much / ready < 0.1


def test_a_state_goes_on() -> None:
    one, other = Scale(), Scale()
    one.add([1.0, 2.0], [1.0, 0.5])
    other.restore(one.state())
    assert other.pairs == one.pairs
    assert WIDTH > 0


def pair(a: int, b: int) -> Pair:
    return Pair([1], [a], [b], 0.5, 0)


def by_first_token(pairs: list[Pair]) -> PairScores:
    of = {n: float(n) if n != 9 else math.nan for n in range(10)}
    margin_P = torch.tensor([of[p.a[0]] - of[p.b[0]] for p in pairs])
    return PairScores(margin_P, {"half": margin_P / 2})


def test_what_is_told_of_pairs() -> None:
    claimant = ScalarClaimant(by_first_token)
    assert claimant.version == UNCLAIMED
    told = claimant.told([pair(5, 2), pair(9, 2)])
    assert (told[0].margin, told[0].parts) == (3.0, {"half": 1.5})
    assert (told[1].claim, told[1].margin, told[1].parts) == (0.5, 0.0, {}), "a side that could not be scored"
    claimant.scale.add([1.0] * 60, [1.0] * 55 + [0.0] * 5)
    assert claimant.version == 1
    assert claimant.told([pair(5, 2)])[0].claim > 0.9
    assert claimant.margins([pair(5, 2), pair(9, 2)]).tolist() == [[3.0, 0.0]]


def test_pairs_are_ordered_by_the_whole_reward_of_which_a_component_counts_for_less() -> None:
    def lessened(pairs: list[Pair]) -> PairScores:
        scores = by_first_token(pairs)
        return PairScores(scores.margin_P / 4, scores.parts, scores.margin_P)

    told = ScalarClaimant(lessened).told([pair(5, 1), pair(9, 2)])
    assert [(each.margin, each.sureness) for each in told] == [(1.0, 4.0), (0.0, 0.0)]
    assert [each.sureness for each in ScalarClaimant(by_first_token).told([pair(5, 1)])] == [4.0]


def test_what_claims_nothing_is_not_held_against_a_policy() -> None:
    lost = [Granted(2, 20, 0.501, UNCLAIMED)]
    assert held_against([lost] * 5) == 0
    assert held_against([[Granted(2, 20, 0.501, 1)]] * 5) == 5
