"""What an audit asks about, and how an answer counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from holdfast.auditing import Pairs, Question, damped, furthest, surest
from holdfast.collecting import Voices
from holdfast.rollout.sampler import Rollout


@pytest.mark.parametrize(
    ("share", "weight", "outcome"),
    [(1.0, 1.0, 1.0), (0.0, 1.0, 0.0), (1.0, 0.3, 0.65), (0.0, 0.3, 0.35), (0.5, 0.3, 0.5)],
)
def test_the_answer_of_an_unreliable_labeller_counts_for_less(share: float, weight: float, outcome: float) -> None:
    assert damped(share, weight) == pytest.approx(outcome)


@pytest.mark.parametrize("weight", [1.0, 0.5, 0.25])
def test_an_unreliable_labeller_cannot_convict_a_run_whose_claims_hold(weight: float) -> None:
    """Seven wins of ten where seven were claimed leave no gap, whatever they weigh; sides exchanged in every other."""
    pairs = []
    for n in range(10):
        share = float((n < 7) != bool(n % 2))
        item = cast(Any, SimpleNamespace(comparison=SimpleNamespace(id=str(n)), share_a=share, weight=weight))
        pairs.append(Question(bool(n % 2), "anchor", 0.7).answered(item))
    assert sum(pair.policy_won for pair in pairs) == pytest.approx(sum(pair.claim for pair in pairs))


def rollout(answers: int) -> Rollout:
    nothing = torch.zeros(answers, 1)
    return Rollout([[1]] * answers, [[2]] * answers, nothing, None, nothing.bool(), [True] * answers)


def voices(likely: dict[tuple[str, int], list[float]], asked_of: dict[str, Rollout]) -> Voices[str]:
    """Of whom each answer of each rollout is known how likely it is."""

    def likelihood(player: str, asked: Rollout, rows: list[int]) -> torch.Tensor:
        return torch.tensor([likely[player, id(asked)][row] for row in rows])

    def sample(player: str, prompts: list[list[int]], rng: torch.Generator) -> Rollout:
        raise AssertionError("nobody is asked to answer here")

    def own(player: str, asked: Rollout, rows: list[int]) -> torch.Tensor:
        assert asked is asked_of[player], "a player's own answers are known from sampling"
        return likelihood(player, asked, rows)

    return Voices(sample, likelihood, own)


def test_pairs_that_the_ensemble_is_surest_of() -> None:
    some = rollout(4)
    pairs = Pairs([10, 11, 12, 13], [(some, n) for n in range(4)], [(some, n) for n in range(4)])
    found, claims = surest(pairs, [0.6, 0.9, 0.2, 0.7], 2)
    assert (found.rows, claims) == ([11, 13], [0.9, 0.7])
    assert surest(pairs, [0.6, 0.9, 0.2, 0.7], 4) == (pairs, [0.6, 0.9, 0.2, 0.7]), "all of them as they came"


def test_pairs_in_which_the_policy_has_moved_furthest() -> None:
    ours, theirs = rollout(4), rollout(6)
    pairs = Pairs([10, 11, 12, 13], [(ours, n) for n in range(4)], [(theirs, n) for n in (5, 4, 3, 2)])
    likely = {
        ("policy", id(ours)): [-1.0, -2.0, -3.0, -4.0],
        ("anchor", id(ours)): [-1.5, -6.0, -3.0, -4.5],  # the policy's own answers have become likelier: .5 4 0 .5
        ("policy", id(theirs)): [0.0, 0.0, -9.0, -2.0, -5.0, -1.0],
        ("anchor", id(theirs)): [0.0, 0.0, -3.0, -2.0, -4.0, -3.0],  # the anchor's, as they are paired: 2 -1 0 -6
    }
    said = voices(likely, {"policy": ours, "anchor": theirs})
    # .5 - 2, 4 + 1, 0 - 0, .5 + 6: the second and the fourth, as they came.
    assert furthest(pairs, 2, "policy", "anchor", said).rows == [11, 13]
    found = furthest(pairs, 3, "policy", "anchor", said)
    assert found.rows == [11, 12, 13]
    assert [place for _, place in found.theirs] == [4, 3, 2], "sides stay together"


def test_of_a_policy_that_has_not_moved_pairs_are_taken_as_they_come() -> None:
    some = rollout(5)
    pairs = Pairs(list(range(5)), [(some, n) for n in range(5)], [(some, n) for n in range(5)])
    same = voices({(player, id(some)): [-1.0] * 5 for player in ("policy", "anchor")}, {"policy": some, "anchor": some})
    assert furthest(pairs, 2, "policy", "anchor", same).rows == [0, 1]
    nothing = Pairs([], [], [])
    assert furthest(nothing, 0, "policy", "anchor", same) is nothing
