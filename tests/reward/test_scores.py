"""What counts as a score, and what does not."""

from __future__ import annotations

import math

import pytest
import torch

from holdfast.reward.outcome import Unscored, number_of
from holdfast.reward.scores import Asked, scores_of


@pytest.mark.parametrize("value", [1, 0.5, True, torch.tensor(2.0), torch.ones(())])
def test_numbers(value: object) -> None:
    assert number_of(value) == float(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "None"), (math.nan, "NaN"), (1e30, "1e+30"), (-math.inf, "-inf"), ("high", "str"), ([1.0, 2.0], "list"),
        (10**400, "int"),
    ],
)  # fmt: skip
def test_what_is_no_score_has_a_reason(value: object, why: str) -> None:
    told = number_of(value)
    assert isinstance(told, str)
    assert why in told


def test_what_is_not_scored_is_not_zero() -> None:
    scores = scores_of([1.0, None, 0.0, math.nan, Unscored("it timed out"), "1.0"])
    assert scores.scored_B.tolist() == [True, False, True, False, False, False]
    assert scores.total_B[scores.scored_B].tolist() == [1.0, 0.0]
    assert scores.share_unscored == 4 / 6
    assert scores.unscored[4] == "it timed out"
    assert "str" in scores.unscored[5], "a text is no number, whatever it says"
    assert "1 answer: the reward gave None" in scores.reasons()


def test_components() -> None:
    scores = scores_of([{"cites": 1, "correct": 0.5}, {"cites": 0, "correct": None}, {"score": 2, "cites": 1}])
    assert scores.total_B[[0, 2]].tolist() == [1.5, 2.0], "their sum, or what is called the score"
    assert 1 in scores.unscored, "one component that is none leaves the whole answer unscored"
    assert scores.components["cites"][[0, 2]].tolist() == [1.0, 1.0]


def test_some_of_a_batch_keep_their_columns() -> None:
    asked = Asked(["p", "q"], ["a", "b"], [{"target": 1}, {"target": 2}], [True, False], group=2)
    some = asked.among([1])
    assert (some.prompts, some.answers, some.columns_of(0), some.finished) == (["q"], ["b"], {"target": 2}, [False])
    assert Asked(["p"], ["a"]).columns_of(0) == {}
