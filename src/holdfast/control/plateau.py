"""Whether a noisy curve has stopped rising."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from statistics import fmean, variance
from typing import Any

# Steps in each of the two halves that are compared: more than a round's, so that one refresh is no trend.
WINDOW = 8


class Plateau:
    """Compares the last `window` values with the `window` before them.

        rise = mean(new) - mean(old)
        se   = sqrt((var(new) + var(old)) / window)          variances unbiased
        settled when rise <= tolerance * se

    The curve has settled when its rise is not more than noise explains; a falling curve has settled too.
    Under independent noise and with tolerance 1, a flat curve is called settled at about 84% of looks, and
    a rise is seen once it gains more than `se` per window: a longer window sees a slower rise. Fewer than 2
    * window values are never settled.
    """

    def __init__(self, window: int = WINDOW, tolerance: float = 1.0) -> None:
        self._window = window
        self._tolerance = tolerance
        self._values: deque[float] = deque(maxlen=2 * window)

    def add(self, value: float) -> None:
        """Take in the value of one step."""
        if not math.isfinite(value):
            raise ValueError(f"A value of {value} cannot be part of a trend; drop the step instead.")
        self._values.append(value)

    @property
    def settled(self) -> bool:
        """Whether the curve has stopped rising."""
        if len(self._values) < 2 * self._window:
            return False
        values = list(self._values)
        old, new = values[: self._window], values[self._window :]
        error = math.sqrt((variance(new) + variance(old)) / self._window)
        return fmean(new) - fmean(old) <= self._tolerance * error

    def reset(self) -> None:
        """Forget every value: the curve starts afresh, as after a refresh or a rollback."""
        self._values.clear()

    def state(self) -> dict[str, Any]:
        return {"values": list(self._values)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._values = deque(state["values"], maxlen=2 * self._window)
