"""Labellers who go wrong from a round on: what a refresh on their answers does, and whether the gate lets it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from holdfast.errors import HoldfastError
from holdfast.preferences.comparison import Choice, Comparison, Label
from holdfast.preferences.labeller import Labeller
from holdfast.randomness import place_of

# A comparison and its honest answer -> what is answered instead.
Wrong = Callable[[Comparison, Choice], Choice]

FROM_ROUND = 4


def flipped(share: float, comparison: Comparison, honest: Choice) -> Choice:
    """The opposite, for this share of the comparisons."""
    return honest.swap() if place_of(f"{comparison.id}\x1fmislabelled") < share else honest


def always_left(comparison: Comparison, honest: Choice) -> Choice:
    """The first side, unread."""
    return Choice.A


def length_loving(comparison: Comparison, honest: Choice) -> Choice:
    """The longer answer, whatever it says."""
    a, b = (len(side.text.split()) for side in (comparison.a, comparison.b))
    return honest if a == b else Choice.A if a > b else Choice.B


WAYS: dict[str, Wrong] = {
    "flipped-25": partial(flipped, 0.25),
    "flipped-40": partial(flipped, 0.40),
    "always-left": always_left,
    "length-loving": length_loving,
}
HONEST = "honest"


@dataclass(frozen=True)
class Mislabelled:
    """A labeller who answers in a wrong way from a round on; before that, and to the store, nothing is different."""

    labeller: Labeller
    wrong: Wrong
    from_round: int

    @property
    def name(self) -> str:
        return self.labeller.name

    def label(self, comparisons: Sequence[Comparison]) -> Sequence[Label]:
        asked = {c.id: c for c in comparisons}
        return [self._answer(asked[label.comparison_id], label) for label in self.labeller.label(comparisons)]

    def _answer(self, comparison: Comparison, label: Label) -> Label:
        if comparison.round < self.from_round:
            return label
        return replace(label, choice=self.wrong(comparison, label.choice))


def mislabelled(labeller: Labeller | None, way: str, from_round: int = FROM_ROUND) -> Labeller | None:
    """The labeller, or the same one going wrong in the named way."""
    if way == HONEST:
        return labeller
    if way not in WAYS:
        raise HoldfastError(f"There is no way {way!r} of labelling wrongly; there are {', '.join(WAYS)}.")
    if labeller is None:
        raise HoldfastError("The world has no labeller, so nobody can label wrongly; choose another world.")
    return Mislabelled(labeller, WAYS[way], from_round)  # type: ignore[return-value]
