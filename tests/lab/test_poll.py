"""What people say of everything, against numbers worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from holdfast.lab.poll import liked, pairs_needed
from holdfast.preferences.comparison import Choice, Comparison, Label
from holdfast.run.observer import Answer


class Shorter:
    """Likes the shorter answer, and has no opinion where both are as long."""

    def label(self, comparisons: Sequence[Comparison]) -> list[Label]:
        return [Label(c.id, "shorter", self._choice(len(c.a.text), len(c.b.text))) for c in comparisons]

    def _choice(self, a: int, b: int) -> Choice:
        return Choice.TIE if a == b else Choice.A if a < b else Choice.B


def answers(*texts: str) -> list[Answer]:
    return [Answer(text, True) for text in texts]


# Two prompts, each answered twice.
PROMPTS = ["p", "q", "p", "q"]
SAID = {
    0: answers("xxx", "xxx", "xxx", "xxx"),
    1: answers("x", "xx", "x", "xx"),
    2: answers("xx", "xx", "x", "x"),
}


def test_every_answer_meets_every_one_of_the_best_round_before() -> None:
    # Round 1 is shorter than round 0 throughout. Round 2 against round 1, by gold the better one: for p, xx and x meet
    # x twice each, 0 + 1/2; for q, xx and x meet xx, 1/2 + 1. Together 4 of 8 pairs.
    assert liked(Shorter(), PROMPTS, SAID, [0.1, 0.5, 0.3]) == [None, 1.0, 0.5]
    # Were round 0 the best one, round 2 would be preferred to it in every pair.
    assert liked(Shorter(), PROMPTS, SAID, [0.9, 0.5, 0.3]) == [None, 1.0, 1.0]


class Left:
    """Takes the first side, unread."""

    def label(self, comparisons: Sequence[Comparison]) -> list[Label]:
        return [Label(c.id, "left", Choice.A) for c in comparisons]


def test_whoever_does_not_read_is_of_no_opinion() -> None:
    assert liked(Left(), PROMPTS, SAID, [0.1, 0.5, 0.3]) == [None, 0.5, 0.5]


def test_without_the_answers_of_a_round_nothing_is_said() -> None:
    assert liked(Shorter(), PROMPTS, {0: SAID[0], 2: SAID[2]}, [0.1, 0.5, 0.3]) == []


def test_how_many_pairs_show_a_preference() -> None:
    """Three standard errors of 1 / (2 sqrt n) are the distance to 1/2."""
    assert pairs_needed(0.35) == pytest.approx(100.0)
    assert pairs_needed(0.47) == pytest.approx(2500.0)
    assert math.isinf(pairs_needed(0.5))
    assert math.isinf(pairs_needed(0.6))
