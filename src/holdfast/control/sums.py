"""A sum that never rounds until it is read."""

from __future__ import annotations

import math


class ExactSum:
    """A running sum: `value` is `math.fsum` of all that was added, to the last bit, without going through it again.

    The sum is held as a few floats that do not overlap, from small to large (Shewchuk 1997, Adaptive precision
    floating-point arithmetic).
    """

    def __init__(self) -> None:
        self._parts: list[float] = []

    def add(self, x: float) -> None:
        kept = 0
        for y in self._parts:
            if abs(x) < abs(y):
                x, y = y, x
            high = x + y
            low = y - (high - x)  # what `high` has lost, exactly
            if low:
                self._parts[kept] = low
                kept += 1
            x = high
        self._parts[kept:] = [x]

    @property
    def value(self) -> float:
        return math.fsum(self._parts)
