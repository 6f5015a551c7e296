"""A labeller who likes long answers at first and short ones from round 2 on: a reward for length is hacked then."""

from __future__ import annotations

from holdfast.preferences.comparison import Choice, Comparison
from nostalgic import Nostalgic

SPEC = f"{__file__}:Terse"


class Terse(Nostalgic):
    """It goes by the number of words alone, so that a reward model can learn what it says."""

    name = "terse"

    def choose(self, c: Comparison) -> Choice:
        likes_long = c.a.provenance.round < 2
        a, b = len(c.a.text.split()), len(c.b.text.split())
        return Choice.TIE if a == b else Choice.A if (a > b) == likes_long else Choice.B
