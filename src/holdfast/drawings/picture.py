"""What a drawing comes to: a picture with its words, or one sentence that says why there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.documents import json_of
from holdfast.text import counted, listed

# What people compare is short; nothing longer is read, so that no answer can keep a page or a terminal busy.
LONGEST_ANSWER = 50_000
# Beyond this a coordinate says nothing that a picture could show.
LARGEST_NUMBER = 1e6


class CannotBeDrawn(Exception):
    """Why an answer has no picture: what follows "It cannot be drawn: "."""


@dataclass(frozen=True)
class AnswerPicture:
    """An answer as a picture.

    `words` are its text alternative, made from its numbers, `notes` what a glance may miss, and `legend` names what is
    drawn without a label, each with its class of colour.
    """

    kind: str
    svg: str
    words: str
    notes: tuple[str, ...] = ()
    legend: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Undrawn:
    """An answer that cannot be drawn, and why."""

    why: str

    @property
    def sentence(self) -> str:
        return f"It cannot be drawn: {self.why}."


def document_of(text: str) -> Any:
    """The JSON that an answer is."""
    if len(text) > LONGEST_ANSWER:
        raise CannotBeDrawn(f"it has {len(text):,} characters, and at most {LONGEST_ANSWER:,} are read")
    if not text.strip():
        raise CannotBeDrawn("the answer is empty")
    try:
        return json_of(text)
    except ValueError:
        raise CannotBeDrawn("it is not JSON, or not to its end") from None


def number_of(value: object, what: str) -> float:
    """A number that can be drawn."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CannotBeDrawn(f"{what} is not a number")
    if not -LARGEST_NUMBER <= value <= LARGEST_NUMBER:  # NaN is not either
        raise CannotBeDrawn(f"{what} is {'no finite number' if _not_finite(value) else 'too large'}")
    return float(value)


def _not_finite(value: float) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def shortened(parts: Sequence[str], most: int, one: str, several: str) -> str:
    """The first few of many parts: "a, b and 3 more pairs"."""
    left = len(parts) - most
    return listed([*parts[:most], counted(left, f"more {one}", f"more {several}")] if left > 0 else list(parts))
