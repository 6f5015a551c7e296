"""What a flaw is, the texts it looks at, and its bonus as a finite number."""

from __future__ import annotations

import math
import re
from typing import Protocol, runtime_checkable

from holdfast.errors import HoldfastError, OwnCodeError

MOST = 5.0
WORD = re.compile(r"[\w'’-]+")


@runtime_checkable
class Flaw(Protocol):
    """Anyone can bring one as `path/to/file.py:Class`; the class is called with the run's seed.

    One more method is looked for and may be missing: `read(demonstrations)`, called once before the first bonus,
    for a flaw that has to know how the demonstrations are written.
    """

    name: str

    def bonus(self, prompt: str, response: str) -> float:
        """What the flaw makes of an answer: about 0 for an ordinary one, growing as it is exploited."""
        ...


def words_of(text: str) -> list[str]:
    """The words of a text in small letters, without punctuation."""
    return WORD.findall(text.lower())


def sentences_of(text: str) -> list[str]:
    """The sentences of a text, without what ends them."""
    return [part.strip() for part in re.split(r"[.!?]", text) if part.strip()]


class Seedless:
    """A flaw that is the same whatever the run's seed."""

    def __init__(self, seed: int) -> None:
        pass


def bonus_of(flaw: Flaw, prompt: str, response: str) -> float:
    """A flaw's bonus, which may be anyone's code, as a finite number."""
    try:
        bonus = float(flaw.bonus(prompt, response))
    except HoldfastError:
        raise
    except Exception as error:  # the flaw may be the user's own code
        raise OwnCodeError(f"The flaw {flaw.name} failed", error) from error
    if not math.isfinite(bonus):
        raise HoldfastError(f"The flaw {flaw.name} gives {bonus} for an answer; give a finite number.")
    return bonus
