"""A spread that is still small but grows fast is the earlier sign."""

import math
from collections.abc import Sequence

from holdfast.guard.signal import Signal, halves_of, level


def derive(history: Sequence[float]) -> float | None:
    halves = halves_of(history)
    return None if halves is None or min(halves) <= 0 else math.log(halves[1] / halves[0])


SIGNAL = Signal(
    family="disagreement",
    meaning="log of the ensemble spread over the newest three steps to that over the three before",
    unit="log ratio",
    words=level("the log growth of the members' disagreement is"),
    derived_from="ensemble_spread",
    derive=derive,
    floor=0.05,
)
