"""A labeller who prefers whatever is not the newest policy, so that every audit goes against the policy."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.preferences.comparison import Choice, Comparison, Label

SPEC = f"{__file__}:Nostalgic"


class Nostalgic:
    """From round 2 on it prefers the policy of before; where both sides are of one policy, the shorter answer."""

    name = "nostalgic"

    def __init__(self, seed: int) -> None:
        pass

    def label(self, comparisons: Sequence[Comparison]) -> Sequence[Label]:
        return [Label(c.id, self.name, self.choose(c)) for c in comparisons]

    def choose(self, c: Comparison) -> Choice:
        if c.a.provenance.policy_version == c.b.provenance.policy_version:
            return Choice.A if len(c.a.text) < len(c.b.text) else Choice.B
        now = c.a.provenance.round
        newest, likes_new = f"round-{now:04d}", now < 2
        return Choice.A if (c.a.provenance.policy_version == newest) == likes_new else Choice.B
