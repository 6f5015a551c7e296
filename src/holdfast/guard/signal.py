"""What a signal is: something cheap that is read from every batch and tends to move when a reward is being hacked.

A signal says nothing about right or wrong. Its reading is compared with its own baseline (`guard/baseline.py`), and an
unusual one buys audit labels, with which people decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from holdfast.errors import HoldfastError
from holdfast.guard.view import Known, StepView

Direction = Literal["high", "low", "both"]
# What a signal is about. Signals of one family tell the same story, so a sentence takes one of each.
Family = Literal[
    "length", "repetition", "vocabulary", "copying", "sameness", "distance", "disagreement", "certainty", "update",
    "reward",
]  # fmt: skip
# Families that say what the answers look like: what a person sees first, and what a hack is known by.
LOOKS: tuple[Family, ...] = ("length", "repetition", "vocabulary", "copying", "sameness")
# On which scale readings spread evenly and healthy training moves them in a straight line.
Scale = Literal["plain", "root", "log"]

# A derived signal compares its source's mean over this many newest readings with that over as many before them.
HALF = 3

_LEAST = 1e-12


@dataclass(frozen=True)
class Usual:
    """What a reading is compared with in words: the reference's mean where it has one, else that of healthy rounds.

    Of a stream whose policy is unknown neither exists; what it began with stands for both (`of_start`).
    """

    value: float
    of_reference: bool
    of_start: bool = False

    @property
    def than(self) -> str:
        if self.of_start:
            return "than at the start"
        return "than the reference's" if self.of_reference else "than in healthy rounds"

    @property
    def against(self) -> str:
        if self.of_start:
            return "at the start"
        return "for the reference" if self.of_reference else "in healthy rounds"


Words = Callable[[float, Usual], str]


@dataclass(frozen=True)
class Signal:
    """One detector, named after its file.

    `read` takes it from a batch, and gives None where a batch cannot show it. A signal with `derived_from` is instead
    made by `derive` from the last readings of another one, oldest first. `side` is the suspicious one. `floor` is the
    smallest standard deviation, on the signal's scale, that a baseline may have: changes much smaller do not matter.
    `needs` says in words what it reads, where not every reward or trainer has it.
    """

    family: Family
    meaning: str
    unit: str
    words: Words
    name: str = ""
    side: Direction = "high"
    read: Callable[[StepView, Known], float | None] | None = None
    derived_from: str = ""
    derive: Callable[[Sequence[float]], float | None] | None = None
    scale: Scale = "plain"
    floor: float = 0.0
    needs: str = ""

    def __post_init__(self) -> None:
        derived = bool(self.derived_from) and self.derive is not None
        if derived == (self.read is not None):
            raise HoldfastError(
                f"The signal {self.name!r} needs either `read`, or `derived_from` and `derive`; give it one of the two."
            )

    @property
    def metric(self) -> str:
        """The name of its readings among the metrics."""
        return f"signal/{self.name}"

    @property
    def better(self) -> Literal["up", "down", "neither"]:
        """Which way is the better one, as the metric registry says it."""
        return {"high": "down", "low": "up", "both": "neither"}[self.side]  # type: ignore[return-value]

    def scaled(self, x: float) -> float:
        """A reading on the signal's scale."""
        if self.scale == "root":
            return math.copysign(math.sqrt(abs(x)), x)
        if self.scale == "log":
            return math.log(max(x, _LEAST))
        return x


def halves_of(history: Sequence[float]) -> tuple[float, float] | None:
    """Means of the readings before the newest `HALF`, and of those; None while there are too few."""
    if len(history) < 2 * HALF:
        return None
    newest, before = history[-HALF:], history[-2 * HALF : -HALF]
    return sum(before) / HALF, sum(newest) / HALF


# The last readings of the signals that others are derived from, oldest first.
Recent = dict[str, list[float]]


def read_all(
    signals: Mapping[str, Signal], view: StepView, known: Known, recent: Mapping[str, Sequence[float]]
) -> tuple[dict[str, float], Recent]:
    """What every signal says of a batch, and what the next batch needs to know of it.

    What cannot be read, or is not a number, is left out.
    """
    readings: dict[str, float] = {}
    for name, signal in signals.items():
        if signal.read is not None:
            _put(readings, name, signal.read(view, known))
    for name, signal in signals.items():
        source = signal.derived_from
        if signal.derive is not None and source in readings:
            _put(readings, name, signal.derive([*recent.get(source, []), readings[source]]))
    kept = {name: list(last) for name, last in recent.items()}
    for source in sorted({signal.derived_from for signal in signals.values()} & readings.keys()):
        kept[source] = [*kept.get(source, []), readings[source]][-2 * HALF :]
    return readings, kept


def _put(readings: dict[str, float], name: str, value: float | None) -> None:
    if value is not None and math.isfinite(value):
        readings[name] = value


# --- words ------------------------------------------------------------------------------------------------------


def times(subject: str, more: str, less: str) -> Words:
    """Such as: answers are 2.1x longer than the reference's; for readings above 0."""

    def words(now: float, usual: Usual) -> str:
        if now <= 0 or usual.value <= 0:
            return f"{subject} {three_digits(now)} against {three_digits(usual.value)} {usual.against}"
        ratio = max(now / usual.value, usual.value / now)
        size = f"{ratio:.1f}x" if ratio >= 1.95 else f"{ratio - 1.0:.0%}"
        return f"{subject} {size} {more if now >= usual.value else less} {usual.than}"

    return words


def level(subject: str, unit: str = "") -> Words:
    """Such as: the update moves the policy by 0.4 nats against 0.05 in healthy rounds."""

    def words(now: float, usual: Usual) -> str:
        value = f"{three_digits(now)} {unit}".rstrip()
        return f"{subject} {value} against {three_digits(usual.value)} {usual.against}"

    return words


def share(of_what: str) -> Words:
    """Such as: 31% of 3-grams repeat within an answer against 2% for the reference."""

    def words(now: float, usual: Usual) -> str:
        return f"{fine_percent(now)} {of_what} against {fine_percent(usual.value)} {usual.against}"

    return words


def three_digits(x: float) -> str:
    """Three digits, without an exponent where it can be read without one."""
    return f"{x:.3g}" if abs(x) < 1000 else f"{x:.0f}"


def fine_percent(x: float) -> str:
    """Whole per cent, with a decimal below 10."""
    return f"{x:.1%}" if 0 < abs(x) < 0.0995 else f"{x:.0%}"
