"""What a signal usually reads, and how unusual a new reading is.

A baseline holds the readings of the reference's batches, and the newest of the steps of rounds that were found healthy.
It answers with a p-value: how often a reading at least so far to the suspicious side would turn up by chance.

Training moves the signals of a healthy run as well: that is what it is for. So there are two things that a new reading
may be without being unusual, and it has to be beyond both of them:

    level   one more draw of what the baseline holds
            t = (y - m) / (s sqrt(1 + 1/n)),  n - 1 degrees of freedom
    trend   a further point on the straight line through it
            t = (y - a - b u) / (e sqrt(1 + 1/n + (u - v)^2 / S)),  n - 2 degrees of freedom

(the predictive Student t, and the same for simple regression on the count of healthy steps u, with mean v and sum of
squares S; s and e are the standard deviations about the mean and about the line). The larger p-value of the two
counts, for each side by itself: the largest p-value over a null hypothesis of two parts is valid for both. A reading
between the two, as when a rise slows down, is not unusual. A round is one draw: its reading is the mean over its steps,
against the spread of single steps. Steps of a round are not independent, so no credit is taken for their number.

A standard deviation below the floor is raised to it: 5% of the mean's size (of the reading itself on the log scale), or
the signal's own floor in its unit, whichever is larger. So a baseline that never varied does not make every change a
miracle, and changes too small to matter stay unremarkable however steady the signal.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from holdfast.guard.signal import Direction, Signal, Usual
from holdfast.statistics import student_tail

# Steps of healthy rounds that a baseline remembers: about seven rounds, so that it follows a policy that improves.
WINDOW = 40
RELATIVE_FLOOR = 0.05
# Fewer values have no spread worth the name.
LEAST_VALUES = 4

# When a reading was taken, in healthy steps since the beginning (0: the reference), and what it was.
Reading = tuple[int, float]


@dataclass(frozen=True)
class Deviation:
    """How a round's reading stands to its baseline; `z` is in predictive deviations, and 0 between level and trend."""

    value: float
    usual: Usual
    z: float
    p: float


@dataclass(frozen=True)
class Prediction:
    """What a reading would be if nothing were wrong: a Student t with a centre and a width."""

    centre: float
    width: float
    freedom: int

    def z(self, y: float) -> float:
        return (y - self.centre) / self.width

    def above(self, y: float) -> float:
        """P(a reading >= y)."""
        return student_tail(self.z(y), self.freedom)

    def below(self, y: float) -> float:
        """P(a reading <= y)."""
        return student_tail(-self.z(y), self.freedom)


def level_prediction(values: Sequence[float], floor: float) -> Prediction:
    """One more draw from the distribution of these values."""
    n, mean = len(values), fmean(values)
    spread = max(floor, math.sqrt(sum((y - mean) ** 2 for y in values) / (n - 1)))
    return Prediction(mean, spread * math.sqrt(1.0 + 1.0 / n), n - 1)


def trend_prediction(points: Sequence[tuple[float, float]], at: float, floor: float) -> Prediction | None:
    """A further point, `at` a time, on the line through (time, value); None where all are of one time."""
    n = len(points)
    mean_time, mean = fmean(u for u, _ in points), fmean(y for _, y in points)
    squares = sum((u - mean_time) ** 2 for u, _ in points)
    if squares <= 0.0:
        return None
    slope = sum((u - mean_time) * (y - mean) for u, y in points) / squares
    rest = sum((y - mean - slope * (u - mean_time)) ** 2 for u, y in points)
    spread = max(floor, math.sqrt(rest / (n - 2)))
    width = spread * math.sqrt(1.0 + 1.0 / n + (at - mean_time) ** 2 / squares)
    return Prediction(mean + slope * (at - mean_time), width, n - 2)


def p_and_z(y: float, predictions: Sequence[Prediction], side: Direction) -> tuple[float, float]:
    """The p-value for the suspicious side, and the distance to the nearest prediction; beyond all of them counts."""
    high = max(prediction.above(y) for prediction in predictions)
    low = max(prediction.below(y) for prediction in predictions)
    distances = [prediction.z(y) for prediction in predictions]
    between = min(distances) < 0.0 < max(distances)
    z = 0.0 if between else min(distances, key=abs)
    return {"high": high, "low": low, "both": min(1.0, 2.0 * min(high, low))}[side], z


class Baseline:
    """The readings of one signal that count as usual.

    With `of_start` the reference's place is taken by the first batches of a stream, and words say so.
    """

    def __init__(self, signal: Signal, window: int = WINDOW, of_start: bool = False) -> None:
        self._signal, self._of_start = signal, of_start
        self._reference: list[float] = []
        self._healthy: deque[Reading] = deque(maxlen=window)

    def add_reference(self, value: float) -> None:
        """A batch of the reference's own answers."""
        self._reference.append(value)

    def add_healthy(self, readings: Sequence[Reading]) -> None:
        """The steps of a round that was found healthy."""
        self._healthy.extend(readings)

    def of_reference(self) -> tuple[float, float] | None:
        """Mean and standard deviation of the reference's readings; None without two of them."""
        if len(self._reference) < 2:
            return None
        return fmean(self._reference), stdev(self._reference)

    def __len__(self) -> int:
        return len(self._reference) + len(self._healthy)

    def p_value(self, x: float) -> float | None:
        """How unusual one reading is right after the baseline's last one; None while the baseline is too short."""
        next_time = self._healthy[-1][0] + 1 if self._healthy else 1
        deviation = self.compare([(next_time, x)])
        return None if deviation is None else deviation.p

    def compare(self, readings: Sequence[Reading]) -> Deviation | None:
        """How unusual a round is, by the mean of its readings; None without any, or while the baseline is too short."""
        if not readings or len(self) < LEAST_VALUES:
            return None
        scaled = self._signal.scaled
        points = [(0.0, scaled(x)) for x in self._reference] + [(float(u), scaled(x)) for u, x in self._healthy]
        floor = self._floor([y for _, y in points])
        y, at = fmean(scaled(x) for _, x in readings), fmean(u for u, _ in readings)
        predictions = [level_prediction([y for _, y in points], floor)]
        trend = trend_prediction(points, at, floor)
        if trend is not None:
            predictions.append(trend)
        p, z = p_and_z(y, predictions, self._signal.side)
        return Deviation(fmean(x for _, x in readings), self._usual(), z, p)

    def _usual(self) -> Usual:
        """The reference's mean where it has a reading, for words that everybody understands."""
        if self._reference:
            return Usual(fmean(self._reference), of_reference=not self._of_start, of_start=self._of_start)
        return Usual(fmean(x for _, x in self._healthy), of_reference=False)

    def _floor(self, scaled: Sequence[float]) -> float:
        relative = RELATIVE_FLOOR * (1.0 if self._signal.scale == "log" else abs(fmean(scaled)))
        # The last term only keeps a baseline of zeros from a division by zero.
        return max(self._signal.floor, relative, 1e-9)

    def state(self) -> dict[str, Any]:
        return {"reference": list(self._reference), "healthy": list(self._healthy)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._reference = list(state["reference"])
        self._healthy.clear()
        self._healthy.extend((time, value) for time, value in state["healthy"])
