"""Scores that are kept by text."""

from __future__ import annotations

import math

import pytest

from holdfast.models.prompt import Message
from holdfast.reward.outcome import Unscored
from holdfast.reward.scores import Asked, Scores, scores_of
from holdfast.reward.sources import cache
from holdfast.reward.sources.cache import CachedSource
from holdfast.reward.sources.plain import Nature


class Counted:
    """How often it was asked about what; an empty answer has no score."""

    name = "counted"

    def __init__(self, alone: bool = True) -> None:
        self.nature, self.asked = Nature(alone), list[str]()

    def score(self, asked: Asked) -> Scores:
        self.asked += asked.answers
        return scores_of(
            [
                {"length": len(answer), "wanted": asked.columns_of(row).get("wanted", 0)}
                if answer
                else Unscored("empty")
                for row, answer in enumerate(asked.answers)
            ]
        )

    def close(self) -> None:
        pass


def test_the_same_answer_is_asked_for_once() -> None:
    source = Counted()
    kept = CachedSource(source)
    first = kept.score(Asked(["p", "p", "q", "p"], ["a", "bb", "a", "a"], group=2))
    second = kept.score(Asked(["p", "p", "p"], ["ccc", "a", "bb"]))
    assert first.total_B.tolist() == [1.0, 2.0, 1.0, 1.0]
    assert second.total_B.tolist() == [3.0, 1.0, 2.0]
    assert second.components["length"].tolist() == [3.0, 1.0, 2.0]
    assert second.weights == {"length": 1.0, "wanted": 1.0}
    assert source.asked == ["a", "bb", "a", "ccc"]


def test_prompts_and_columns_tell_answers_apart() -> None:
    source = Counted()
    kept = CachedSource(source)
    turns = (Message("user", "p"),)
    batch = Asked(["p", "p", turns], ["a", "a", "a"], [{"wanted": 1}, {"wanted": 2}, {"wanted": 1}])
    assert kept.score(batch).total_B.tolist() == [2.0, 3.0, 2.0]
    assert len(source.asked) == 3
    other_order = Asked(["p"], ["a"], [dict(reversed(list({"x": 1, "wanted": 1}.items())))])
    kept.score(Asked(["p"], ["a"], [{"x": 1, "wanted": 1}]))
    kept.score(other_order)
    assert len(source.asked) == 4


def test_what_had_no_score_is_asked_again() -> None:
    source = Counted()
    kept = CachedSource(source)
    for _ in range(2):
        scores = kept.score(Asked(["p", "p"], ["", "a"]))
        assert math.isnan(scores.total_B[0])
        assert scores.unscored == {0: "empty"}
        assert math.isnan(scores.components["length"][0])
    assert source.asked == ["", "a", ""]


def test_a_source_that_looks_at_whole_batches_is_asked_each_time() -> None:
    source = Counted(alone=False)
    kept = CachedSource(source)
    for _ in range(2):
        kept.score(Asked(["p", "p"], ["a", "a"]))
    assert source.asked == ["a"] * 4


def test_no_more_is_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MOST_KEPT", 2)
    source = Counted()
    kept = CachedSource(source)
    for answer in ("a", "b", "a", "c", "a", "b"):
        assert kept.score(Asked(["p"], [answer])).total_B.tolist() == [1.0]
    assert source.asked == ["a", "b", "c", "b"], "the one that was not wanted for the longest time went"
