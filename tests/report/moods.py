"""A labeller who likes every new policy but that of one round, so that this round is found out and undone."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.preferences.comparison import Choice, Comparison, Label

SPEC = f"{__file__}:Moody"
BAD_ROUND = 3


class Moody:
    """Where both sides are of one policy it prefers the shorter answer."""

    name = "moody"

    def __init__(self, seed: int) -> None:
        pass

    def label(self, comparisons: Sequence[Comparison]) -> Sequence[Label]:
        return [Label(c.id, self.name, self.choose(c)) for c in comparisons]

    def choose(self, c: Comparison) -> Choice:
        if c.a.provenance.policy_version == c.b.provenance.policy_version:
            return Choice.A if len(c.a.text) < len(c.b.text) else Choice.B
        now = c.a.provenance.round
        likes_new = now != BAD_ROUND
        return Choice.A if (c.a.provenance.policy_version == f"round-{now:04d}") == likes_new else Choice.B
