"""A labeller who thinks for a while before the first answers."""

from __future__ import annotations

import time
from collections.abc import Sequence

from holdfast.preferences.comparison import Choice, Comparison, Label

SPEC = f"{__file__}:Unhurried"
SECONDS = 9.0


class Unhurried:
    """Prefers the longer answer."""

    name = "unhurried"

    def __init__(self, seed: int) -> None:
        self.thinks_for = SECONDS

    def label(self, comparisons: Sequence[Comparison]) -> Sequence[Label]:
        time.sleep(self.thinks_for)
        self.thinks_for = 0.0
        return [Label(c.id, self.name, Choice.A if len(c.a.text) >= len(c.b.text) else Choice.B) for c in comparisons]
