"""What is to be forecast: a quantity in words, how it is distributed in truth, and at which points people want to know.

    minutes until the bus comes; usually 8, sometimes up to 20; at 4 8 12 16 20 24 28 32

usually m, sometimes up to u    log-normal, median m, one in twenty above u
about m, give or take s         normal, mean m, standard deviation s
anything from a to b            uniform

What is beyond the last point counts as the last point, so every distribution ends at 1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from math import log
from statistics import NormalDist

from holdfast.errors import HoldfastError

POINTS = 8
STEPS = (1, 10)
QUANTITIES = (
    "minutes until the bus comes",
    "minutes until the ferry leaves",
    "days until the parcel arrives",
    "days until the doctor calls",
    "hours until the rain stops",
    "hours until the power is back",
    "guests at the long table",
    "letters in the box",
    "calls before noon",
    "boats in the harbour",
    "weeks until the paint dries",
    "questions after the talk",
)
NORMAL = NormalDist()
ONE_IN_TWENTY = NORMAL.inv_cdf(0.95)
# In steps between two points: what the two numbers of a description may be.
RANGES = {
    "usually": [(m, u) for m, u in product(range(1, 6), range(2, 9)) if u > m],
    "about": [(m, s) for m, s in product(range(2, 7), range(1, 4)) if s < m],
    "anything": [(a, b) for a, b in product(range(7), range(2, 9)) if b > a + 1],
}
WORDS = {
    "usually": "usually {}, sometimes up to {}",
    "about": "about {}, give or take {}",
    "anything": "anything from {} to {}",
}
DESCRIBED = re.compile(r"[a-z ]+; (?P<how>usually|about|anything)\D+(?P<one>\d+)\D+(?P<other>\d+); at (?P<at>[\d ]+)")


@dataclass(frozen=True)
class Quantity:
    """How it is described, the description's two numbers, and the points."""

    how: str
    one: float
    other: float
    points: tuple[int, ...]

    def truth(self) -> list[float]:
        """The probability of at most each point."""
        return self.curve()

    def curve(self, spread: float = 1.0, shift: float = 0.0) -> list[float]:
        """The same of somebody who thinks it spreads so many times as wide, and lies so much higher."""
        return [*(self._below(x - shift, spread) for x in self.points[:-1]), 1.0]

    def _below(self, x: float, spread: float) -> float:
        match self.how:
            case "usually":
                sigma = spread * log(self.other / self.one) / ONE_IN_TWENTY
                return NORMAL.cdf(log(x / self.one) / sigma) if x > 0 else 0.0
            case "about":
                return NORMAL.cdf((x - self.one) / (spread * self.other))
            case _:
                middle, half = (self.one + self.other) / 2, spread * (self.other - self.one) / 2
                return min(1.0, max(0.0, (x - middle + half) / (2 * half)))


def every_prompt() -> list[str]:
    """All that can be asked, in a fixed order."""
    points = {step: " ".join(str(step * n) for n in range(1, POINTS + 1)) for step in STEPS}
    return [
        f"{quantity}; {WORDS[how].format(one * step, other * step)}; at {points[step]}"
        for quantity in QUANTITIES
        for step in STEPS
        for how, numbers in RANGES.items()
        for one, other in numbers
    ]


def quantity_of(prompt: str) -> Quantity:
    """What a prompt of this world describes."""
    found = DESCRIBED.fullmatch(prompt)
    if found is None:
        raise HoldfastError(f"{prompt!r:.60} is not a prompt of the forecast world, such as {every_prompt()[0]!r}.")
    points = tuple(int(word) for word in found["at"].split())
    return Quantity(found["how"], float(found["one"]), float(found["other"]), points)
