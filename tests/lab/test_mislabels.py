"""Labellers who go wrong: from the round they are told, and in the way they are told."""

from collections.abc import Sequence

import pytest

from holdfast.errors import HoldfastError
from holdfast.lab.mislabels import HONEST, WAYS, mislabelled
from holdfast.preferences.comparison import Choice, Comparison, Label, Provenance, Response

ORIGIN = Provenance("test", 0, 0)


class Second:
    """Prefers the second side, always."""

    name = "second"

    def label(self, comparisons: Sequence[Comparison]) -> list[Label]:
        return [Label(c.id, self.name, Choice.B) for c in comparisons]


def comparisons(round: int, count: int = 2000, a: str = "x", b: str = "y") -> list[Comparison]:
    return [Comparison(f"c{round}-{i}", "p", Response(a, ORIGIN), Response(b, ORIGIN), round) for i in range(count)]


def share_wrong(way: str, asked: list[Comparison]) -> float:
    labeller = mislabelled(Second(), way, from_round=4)
    assert labeller is not None
    labels = labeller.label(asked)
    assert [label.comparison_id for label in labels] == [c.id for c in asked]
    assert {label.labeller for label in labels} == {"second"}
    return sum(label.choice is Choice.A for label in labels) / len(labels)


@pytest.mark.parametrize("way", WAYS)
def test_before_their_round_all_are_honest(way: str) -> None:
    assert share_wrong(way, comparisons(3, a="longer than b", b="y")) == 0.0


@pytest.mark.parametrize(("way", "share"), [("flipped-25", 0.25), ("flipped-40", 0.40)])
def test_flips_come_at_their_rate_and_are_the_same_again(way: str, share: float) -> None:
    asked = comparisons(4)
    assert share_wrong(way, asked) == pytest.approx(share, abs=4 * (share * (1 - share) / 2000) ** 0.5)
    assert share_wrong(way, asked) == share_wrong(way, asked)


def test_always_left() -> None:
    assert share_wrong("always-left", comparisons(5)) == 1.0


def test_length_loving() -> None:
    assert share_wrong("length-loving", comparisons(4, a="one two", b="one")) == 1.0
    assert share_wrong("length-loving", comparisons(4, a="one", b="one two")) == 0.0
    # Of equal length the honest answer stands.
    assert share_wrong("length-loving", comparisons(4, a="one", b="two")) == 0.0


def test_honest_is_the_labeller_itself_and_unknown_ways_are_refused() -> None:
    honest = Second()
    assert mislabelled(honest, HONEST) is honest
    assert mislabelled(None, HONEST) is None
    with pytest.raises(HoldfastError, match="There is no way 'upside-down' of labelling wrongly"):
        mislabelled(honest, "upside-down")
    with pytest.raises(HoldfastError, match="no labeller"):
        mislabelled(None, "always-left")
