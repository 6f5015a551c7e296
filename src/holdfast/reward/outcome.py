"""What a reward gave for one answer, read as a number, as numbers by component, or as a reason why it is neither.

Plain Python: a reward function's worker reads outcomes in a process that needs nothing else of this package.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

# No reward that means something is larger; a 1e30 would be all that its batch learns from.
LARGEST = 1e6
# A component of this name is the reward itself.
TOTAL = "score"


@dataclass(frozen=True)
class Unscored:
    """Why an answer has no score. Asked again, what failed in `passing` may be had."""

    why: str
    passing: bool = False


@dataclass(frozen=True)
class OneScore:
    """The score of an answer, and its components by name, where it has any."""

    score: float
    components: Mapping[str, float] = field(default_factory=dict)


def read_outcome(given: object) -> OneScore | Unscored:
    """The reward and its components, or why there are none.

    Of components, `score` is the reward where it is among them; else the reward is their sum.
    """
    if isinstance(given, OneScore | Unscored):
        return given
    if not isinstance(given, Mapping):
        value = number_of(given)
        return Unscored(value) if isinstance(value, str) else OneScore(value)
    if not given:
        return Unscored("the reward gave no component")
    components: dict[str, float] = {}
    for name, each in given.items():
        value = number_of(each)
        if isinstance(value, str):
            return Unscored(f"{name}: {value}")
        components[str(name)] = value
    total = components.pop(TOTAL, None)
    return OneScore(math.fsum(components.values()) if total is None else total, components)


def number_of(value: object) -> float | str:
    """A score as a number, or why it is none."""
    if value is None:
        return "the reward gave None"
    if isinstance(value, str | bytes):  # "0.7" may be a mistake as well as a number
        return f"the reward gave {type(value).__name__}, which is no number"
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return f"the reward gave {type(value).__name__}, which is no number"
    if math.isnan(number):
        return "the reward gave NaN"
    if abs(number) > LARGEST:
        return f"the reward gave {number:g}, beyond any score ({LARGEST:g})"
    return number
