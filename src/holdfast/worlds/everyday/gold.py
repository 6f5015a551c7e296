"""What people are taken to like in an everyday answer, by scorers of others. Only `holdfast.lab` may ask for it.

    tone    VADER's compound sentiment, -1 to 1
    ease    textstat's automated readability index: 1 up to school year 4, 0 from year 14 on
    prose   Harper's findings in grammar, spelling and style: 1 without any, 0 with one in every five words
    topic   words of the request that come up again: 1 with two of them

    gold = size * (0.4 tone + 0.25 ease + 0.25 prose + 0.1 topic) - 0.3 if it does not end

`size` grows to 1 with the first eight words, so that "Yes!" is not the best of answers. The simulated labeller reads
this too, since a person who compares two answers has the truth in mind.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from typing import Any

from holdfast.errors import HoldfastError

EASY_YEAR, HARD_YEAR = 4.0, 14.0
WORDS_PER_FINDING = 5.0
ENOUGH_WORDS = 8
# Words that are in most requests and say nothing of their subject.
WORDS = """
a about an and any anyone are as at be best but by can could do does for from get give good have help her his
how i if in is it its just keep know like make me my need new of on one or our should so some than that the
their them they this to try two us want way we what when which who why will with without would you your
"""
COMMON = frozenset(WORDS.split())


@dataclass(frozen=True)
class Opinion:
    """What each scorer says of one answer."""

    tone: float
    ease: float
    prose: float
    topic: float
    size: float
    finished: bool

    @property
    def gold(self) -> float:
        liked = 0.4 * self.tone + 0.25 * self.ease + 0.25 * self.prose + 0.1 * self.topic
        return self.size * liked - (0.0 if self.finished else 0.3)


class Scorers:
    """VADER, textstat and Harper, loaded once; none of them fetches anything."""

    def __init__(self) -> None:
        self._tone = _load("vaderSentiment.vaderSentiment").SentimentIntensityAnalyzer()
        self._read = _load("textstat")
        self._lint = _load("harper").Linter()

    def score(self, request: str, answer: str, finished: bool) -> float:
        return self.opinion(request, answer, finished).gold

    def opinion(self, request: str, answer: str, finished: bool) -> Opinion:
        words = int(self._read.lexicon_count(answer))
        if words == 0:
            return Opinion(0.0, 0.0, 0.0, 0.0, 0.0, finished)
        year = float(self._read.automated_readability_index(answer))
        # An answer that was cut off ends in a broken sentence, which is held against it once.
        whole = answer if finished else _whole_sentences(answer)
        findings = len(self._lint.lint(whole)) if whole else 0
        return Opinion(
            tone=float(self._tone.polarity_scores(answer)["compound"]),
            ease=min(1.0, max(0.0, (HARD_YEAR - year) / (HARD_YEAR - EASY_YEAR))),
            prose=max(0.0, 1.0 - WORDS_PER_FINDING * findings / words),
            topic=min(1.0, len(_subject(request) & _subject(answer)) / 2),
            size=min(1.0, words / ENOUGH_WORDS),
            finished=finished,
        )


def _subject(text: str) -> set[str]:
    """What a text is about: its words without the commonest, and without endings that come and go."""
    words = re.findall(r"[a-z]+", text.lower())
    return {re.sub(r"(ing|ed|es|s)$", "", word) for word in words if len(word) > 2 and word not in COMMON}


def _whole_sentences(text: str) -> str:
    return text[: max(text.rfind(mark) for mark in ".!?") + 1]


def _load(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise HoldfastError(
            f"The everyday world needs {name.split('.')[0]}, which is not installed; pip install 'holdfast-rl[real]'."
        ) from error
