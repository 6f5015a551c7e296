"""Labellers whose answers say little or all: one side always, ties always, the newer policy, or the older one."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.preferences.comparison import Choice, Comparison, Label

FIRST, TIES, FOND = (f"{__file__}:{name}" for name in ("First", "Ties", "Fond"))


class First:
    """A judge that always says "A"."""

    name = "first"

    def __init__(self, seed: int) -> None:
        pass

    def label(self, comparisons: Sequence[Comparison]) -> Sequence[Label]:
        return [Label(c.id, self.name, self.choose(c)) for c in comparisons]

    def choose(self, c: Comparison) -> Choice:
        return Choice.A


class Ties(First):
    """The same judge, asked in both orders."""

    name = "ties"

    def choose(self, c: Comparison) -> Choice:
        return Choice.TIE


class Fond(First):
    """Prefers the newer policy, and of one policy's answers the shorter."""

    name = "fond"

    def choose(self, c: Comparison) -> Choice:
        if c.a.provenance.policy_version == c.b.provenance.policy_version:
            return Choice.A if len(c.a.text) < len(c.b.text) else Choice.B
        newest = f"round-{c.a.provenance.round:04d}"
        return Choice.A if c.a.provenance.policy_version == newest else Choice.B
