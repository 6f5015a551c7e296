"""What may be said of a quantity: values at eight points, in hundredths, that do not fall and end at 1.

A grammar cannot compare numbers. This can: the state is how many values have been said, and the last one.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.worlds.forecast.quantity import POINTS

# How many values have been said, and the last of them in hundredths.
State = tuple[int, int]


class Cumulative:
    """{"p":[0.00,0.25,...,1.00]}"""

    def start(self, prompt: str) -> State:
        return 0, 0

    def allowed(self, state: State) -> Sequence[str]:
        said, last = state
        if said == POINTS:
            return ("",)
        if said == POINTS - 1:
            return (",1.00]}",)
        before = "," if said else '{"p":['
        return [f"{before}{value / 100:.2f}" for value in range(last, 101)]

    def next(self, state: State, text: str) -> State:
        said, _ = state
        return (POINTS, 100) if text.endswith("}") else (said + 1, round(100 * float(text[-4:])))
