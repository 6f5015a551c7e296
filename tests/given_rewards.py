"""Reward functions for whole runs: one number, several, columns of the prompt's row, and some that cannot score."""

from __future__ import annotations

from typing import Any

COUNTS = f"{__file__}:counts"
POLITE = f"{__file__}:polite"
FINISHED = f"{__file__}:short"
NEVER = f"{__file__}:never"
SOMETIMES = f"{__file__}:sometimes"
EXPECTED = f"{__file__}:expected"
LABELLED = f"{__file__}:labelled"


def counts(completions: list[str], **columns: Any) -> list[dict[str, float]]:
    """Two components: longer answers, and different words."""
    return [{"words": 0.1 * len(c.split()), "different": 0.2 * len(set(c.split()))} for c in completions]


def polite(completion: str) -> float:
    """Whether an answer has a polite word in it."""
    return float(any(word in completion.lower() for word in ("please", "thank", "sorry", "yes")))


async def short(completion: str) -> float:
    """How short an answer is."""
    return -0.05 * len(completion)


def never(completion: str) -> None:
    """Scores nothing."""


def sometimes(completion: str) -> float:
    """Fails at answers that begin with a letter of the first half of the alphabet."""
    if completion[:1].lower() < "e":
        raise ValueError("cannot read this one")
    return float(len(completion.split()))


def expected(completion: str, wanted: str) -> float:
    """How many words of the answer are those that the prompt's row wants."""
    return float(sum(word in wanted.split() for word in completion.split()))


def labelled(completion: str, label: str = "") -> dict[str, float]:
    """Whether the label is in the answer, and its words."""
    if completion == "fail":
        raise ValueError("cannot read this")
    return {"right": float(bool(label) and label in completion.split()), "words": 0.1 * len(completion.split())}
