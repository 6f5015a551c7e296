"""What a source is before scores are kept, components counted for less, or several put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from holdfast.reward.scores import ScoreSource


@dataclass(frozen=True)
class Nature:
    """What there is to know of a source beside its scores.

    `alone`: an answer's score depends on nothing but itself, its prompt and its columns. `compares`: a single answer
    has no score, only several to one prompt have. `part` is what one of its components is called.
    """

    alone: bool = True
    compares: bool = False
    part: str = "component"


class PlainSource(ScoreSource, Protocol):
    """A source by itself."""

    @property
    def nature(self) -> Nature: ...
