"""Several sources in one reward: weights, gates, normalising, and counting a component for less. Numbers by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest
import torch

from holdfast.config.reward_source import RewardPart, kind_of, parts_of
from holdfast.errors import HoldfastError
from holdfast.reward.outcome import Unscored
from holdfast.reward.scores import Asked, Discount, Scores, scores_of
from holdfast.reward.sources.adjusted import AdjustedSource
from holdfast.reward.sources.parts import OpenPart, PartsSource, opened_parts
from holdfast.reward.sources.plain import Nature


class Given:
    """A source that gives what it was told."""

    nature = Nature()

    def __init__(self, *outcomes: object, weights: Mapping[str, float] | None = None) -> None:
        self.name, self.outcomes, self.weights = "given", outcomes, weights
        self.asked, self.closed = 0, False

    def score(self, asked: Asked) -> Scores:
        self.asked += 1
        return scores_of(self.outcomes[: len(asked)], self.weights)

    def close(self) -> None:
        self.closed = True


def parts(**tables: tuple[Mapping[str, object], Given]) -> PartsSource:
    settings = parts_of({name: {"source": f"{name}.py:f", **table} for name, (table, _) in tables.items()})
    return PartsSource([OpenPart(part, tables[part.name][1]) for part in settings])


def totals(scores: Scores) -> list[float | None]:
    return [None if math.isnan(value) else round(value, 5) for value in scores.total_B.tolist()]


def four(group: int = 1) -> Asked:
    return Asked(["p"] * 4, ["a", "b", "c", "d"], group=group)


def test_terms_are_weighted_and_added() -> None:
    both = parts(right=({}, Given(1, 0, 1, 0)), short=({"weight": -0.5}, Given(1, 2, 3, 4)))
    scores = both.score(four())
    assert totals(scores) == [0.5, -1.0, -0.5, -2.0]
    assert scores.components["short"].tolist() == [1.0, 2.0, 3.0, 4.0], "components are as they were given"


def test_each_part_is_normalised_by_itself() -> None:
    # Over the group: (1, 3) has mean 2 and standard deviation 1; (5, 5) says nothing. Over the batch: mean 0.5, sd 0.5.
    both = parts(
        long=({"normalise": "group"}, Given(1, 3, 5, 5)),
        right=({"normalise": "batch", "weight": 2.0}, Given(1, 0, 0, 1)),
    )
    assert totals(both.score(four(group=2))) == [1.0, -1.0, -2.0, 2.0]
    # Answers that stand by themselves: 1, 3, 5, 5 has mean 3.5 and variance 11/4.
    sd = math.sqrt(11 / 4)
    assert totals(both.score(four())) == [
        round(x / sd + y, 5) for x, y in [(-2.5, 2.0), (-0.5, -2.0), (1.5, -2.0), (1.5, 2.0)]
    ]


def test_what_fails_a_gate_gets_nothing() -> None:
    gated = parts(works=({"gate": True}, Given(1, 0, 1, -1)), style=({}, Given(0.9, 0.8, 0.2, 1.0)))
    scores = gated.score(four())
    assert totals(scores) == [0.9, 0.0, 0.2, 0.0]
    assert scores.components["style"].tolist() == pytest.approx([0.9, 0.8, 0.2, 1.0])
    assert scores.components["works"].tolist() == [1.0, 0.0, 1.0, -1.0]


def test_nothing_is_never_more_than_what_passes_gets() -> None:
    # Of those that pass 0.9 and 0.3 are one standard deviation from their mean; the others get the lower of the two.
    gated = parts(
        works=({"gate": 0.5}, Given(1, 0.5, 0.6, 0)), style=({"normalise": "batch"}, Given(0.9, 9.0, 0.3, 9.0))
    )
    assert totals(gated.score(four())) == [1.0, -1.0, -1.0, -1.0]


def test_nobody_passes() -> None:
    gated = parts(works=({"gate": True}, Given(0, 0, 0, 0)), style=({}, Given(1, 2, 3, 4)))
    assert totals(gated.score(four())) == [0.0] * 4


def test_an_answer_without_a_term_has_no_score_unless_it_gets_nothing_anyway() -> None:
    why = Unscored("it timed out")
    gated = parts(works=({"gate": True}, Given(1, 1, 0, why)), style=({}, Given(1.0, why, why, 1.0)))
    scores = gated.score(four())
    assert totals(scores) == [1.0, None, 0.0, None]
    assert scores.unscored == {1: "style: it timed out", 3: "works: it timed out"}
    two_gates = parts(
        works=({"gate": True}, Given(why, why)), safe=({"gate": True}, Given(0, 1)), style=({}, Given(1, 1))
    )
    assert totals(two_gates.score(Asked(["p", "p"], ["a", "b"]))) == [0.0, None], "failed is failed"


def test_components_of_a_part_are_named_after_it() -> None:
    rubric = Given({"cites": 1, "kind": 0}, {"cites": 0, "kind": 1}, weights={"cites": 1.0, "kind": 1.0})
    both = parts(rubric=({"weight": 2.0}, rubric), right=({}, Given(1, 0)))
    scores = both.score(Asked(["p", "p"], ["a", "b"]))
    assert sorted(scores.components) == ["right", "rubric/cites", "rubric/kind"]
    assert totals(scores) == [3.0, 2.0]


def test_components_and_parts_can_count_for_less_and_the_state_says_so() -> None:
    def made() -> PartsSource:
        rubric = Given({"cites": 1, "kind": 0}, {"cites": 0, "kind": 1}, weights={"cites": 1.0, "kind": 1.0})
        return parts(rubric=({"weight": 2.0}, rubric), right=({}, Given(1, 0)), works=({"gate": True}, Given(1, 1)))

    both, asked = made(), Asked(["p", "p"], ["a", "b"])
    assert both.discount("rubric/cites", 0.5) is None, "nothing is known of it yet"
    both.score(asked)
    assert both.discount("rubric/cites", 0.5) == Discount("rubric/cites", 1.0, 0.5)
    assert totals(both.score(asked)) == [2.0, 2.0], "2 x 0.5 + 1"
    assert both.discount("right", 0.25) == Discount("right", 1.0, 0.25)
    assert totals(both.score(asked)) == [1.25, 2.0]
    assert both.discount("", 0.5) == Discount("", 1.0, 0.5)
    assert both.discount("", 0.5) == Discount("", 0.5, 0.25)
    assert totals(both.score(asked)) == [0.3125, 0.5]
    assert both.score(asked).undiscounted_B.tolist() == [3.0, 2.0]
    assert [both.discount(name, 0.5) for name in ("works", "nothing", "rubric/nothing")] == [None] * 3
    other = made()
    other.restore(both.state())
    assert totals(other.score(asked)) == [0.3125, 0.5]
    assert other.state() == both.state()


def test_a_component_of_a_single_source_can_count_for_less() -> None:
    source = AdjustedSource(Given({"cites": 1, "kind": 1}, {"kind": 1}, {"score": 5, "kind": 1}))
    asked = Asked(["p"] * 3, ["a", "b", "c"])
    assert totals(source.score(asked)) == [2.0, 1.0, 5.0]
    assert source.discount("kind", 0.25) == Discount("kind", 1.0, 0.25)
    scores = source.score(asked)
    assert totals(scores) == [1.25, 0.25, 4.25]
    assert scores.undiscounted_B.tolist() == [2.0, 1.0, 5.0]
    assert scores.components["kind"].tolist() == [1.0, 1.0, 1.0]
    assert source.discount("nothing", 0.5) is None
    other = AdjustedSource(Given({"kind": 1}))
    other.restore(source.state())
    assert totals(other.score(Asked(["p"], ["a"]))) == [0.25]


def test_parts_that_are_the_same_source_ask_it_once() -> None:
    given = Given(1, 0, 1, 0)
    settings = parts_of({"works": {"source": "a.py:f", "gate": True}, "paid": {"source": "a.py:f", "weight": 0.5}})
    both = opened_parts(settings, lambda spec, setting: given)
    assert totals(both.score(four())) == [0.5, 0.0, 0.5, 0.0]
    assert given.asked == 1
    both.close()
    assert given.closed


def test_a_part_that_cannot_be_opened_closes_the_others() -> None:
    given = Given()

    def open_one(spec: str, setting: str) -> Given:
        if spec == "b.py:f":
            raise HoldfastError(f"{setting} is bad.")
        return given

    with pytest.raises(HoldfastError, match=r"reward.parts.two.source is bad"):
        opened_parts([RewardPart("one", "a.py:f"), RewardPart("two", "b.py:f")], open_one)
    assert given.closed


def test_sizes_far_from_one_are_normalised_too() -> None:
    tiny = parts(one=({"normalise": "batch"}, Given(1e-9, 3e-9, 2e5, 2e5)))
    assert torch.isfinite(tiny.score(four()).total_B).all()
    small = parts(one=({"normalise": "batch"}, Given(1e-9, 3e-9)))
    assert totals(small.score(Asked(["p", "p"], ["a", "b"]))) == [-1.0, 1.0]


BAD_TABLES: Sequence[tuple[object, str]] = [
    (3, "has to be a table"),
    ({}, "source has to say"),
    ({"source": "a.py:f", "wieght": 1}, "no setting reward.parts.one.wieght"),
    ({"source": "a.py:f", "weight": 0}, "a number other than 0"),
    ({"source": "a.py:f", "weight": math.inf}, "a number other than 0"),
    ({"source": "a.py:f", "weight": "much"}, "a number other than 0"),
    ({"source": "a.py:f", "normalise": "all"}, "one of none, group, batch"),
    ({"source": "a.py:f", "gate": "yes"}, "true, false"),
    ({"source": "a.py:f", "gate": True, "weight": 2.0}, "is not read of a gate"),
    ({"source": "a.py:f", "gate": True}, "gates alone"),
]


@pytest.mark.parametrize(("table", "sentence"), BAD_TABLES)
def test_a_table_that_says_no_part(table: object, sentence: str) -> None:
    with pytest.raises(HoldfastError, match=sentence):
        parts_of({"one": table})


def test_how_sources_are_told_apart() -> None:
    kinds = [
        kind_of(source)
        for source in (
            "a/b.py:f",
            "model:some/dir",
            "judge",
            "a.toml",
            "a.json",
            "http://h/x.json",
            "https://h",
            "valid:a.json",
            "coverage:column:schema",
        )
    ]
    assert kinds == ["function", "model", "judge", "rubric", "rubric", "service", "service", "structure", "structure"]
    for wrong in ("jugde", "model:", "a.py", "a.py:", "some/dir"):
        with pytest.raises(HoldfastError, match=r"has to be path/to/file.py:name, model:DIR"):
            kind_of(wrong)
