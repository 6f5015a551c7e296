"""Scorers written by others that stand in for people: VADER for tone, Harper for prose. Neither fetches anything."""

from __future__ import annotations

import importlib
import re
from typing import Any

from holdfast.errors import HoldfastError

WORDS_PER_FINDING = 5.0
# Words that are in most requests and say nothing of their subject.
WORDS = """
a about an and any anyone are as at be best but by can could do does for from get give good have help her his
how i if in is it its just keep know like make me my need new of on one or our should so some than that the
their them they this to try two us want way we what when which who why will with without would you your
"""
COMMON = frozenset(WORDS.split())


class Published:
    """Tone and prose of a text; what they need is loaded once."""

    def __init__(self) -> None:
        self._tone = load("vaderSentiment.vaderSentiment").SentimentIntensityAnalyzer()
        self._lint = load("harper").Linter()

    def tone(self, text: str) -> float:
        """VADER's compound sentiment, -1 to 1."""
        return float(self._tone.polarity_scores(text)["compound"])

    def prose(self, text: str, words: int) -> float:
        """Harper's findings in grammar, spelling and style: 1 without any, 0 with one in every five words."""
        findings = len(self._lint.lint(text)) if text else 0
        return max(0.0, 1.0 - WORDS_PER_FINDING * findings / words)


def shared_subject(asked: str, answer: str) -> float:
    """Words of the one that come up again in the other: 1 with two of them."""
    return min(1.0, len(_subject(asked) & _subject(answer)) / 2)


def _subject(text: str) -> set[str]:
    """What a text is about: its words without the commonest, and without endings that come and go."""
    words = re.findall(r"[a-z]+", text.lower())
    return {re.sub(r"(ing|ed|es|s)$", "", word) for word in words if len(word) > 2 and word not in COMMON}


def whole_sentences(text: str) -> str:
    """A text that was cut off, without the sentence in which that happened."""
    return text[: max(text.rfind(mark) for mark in ".!?") + 1]


def load(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise HoldfastError(
            f"This world needs {name.split('.')[0]}, which is not installed; pip install 'holdfast-rl[real]'."
        ) from error
