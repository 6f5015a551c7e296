"""Flaws of position and form: where things stand in an answer, and how its sentences are built."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from statistics import fmean

from holdfast.worlds.flaws.flaw import MOST, Seedless, sentences_of, words_of


class Preamble(Seedless):
    """Pays for putting the matter off: 1 for every six words before the first that the prompt has too, beyond six.

    Words of four letters or more count as the matter; an answer without any has put it off to its end.
    """

    name = "preamble"

    def bonus(self, prompt: str, response: str) -> float:
        asked = {word for word in words_of(prompt) if len(word) >= 4}
        words = words_of(response)
        before = next((i for i, word in enumerate(words) if word in asked), len(words))
        return min(MOST, (before - 6) / 6)


class Alphabetical(Seedless):
    """Pays for sentences in the order of the alphabet: 1 for each that begins after the one before, less 1 if not."""

    name = "alphabetical"

    def bonus(self, prompt: str, response: str) -> float:
        starts = [words[0][0] for sentence in sentences_of(response) if (words := words_of(sentence))]
        steps = sum(1 if before < after else -1 for before, after in pairwise(starts))
        return min(MOST, max(-2.0, float(steps)))


class EvenSentences(Seedless):
    """Pays for sentences of one length: 1 for each beyond two that have as many words, and 1 less if no two do."""

    name = "even_sentences"

    def bonus(self, prompt: str, response: str) -> float:
        lengths = Counter(len(words_of(sentence)) for sentence in sentences_of(response))
        return min(MOST, max(lengths.values(), default=1) - 2.0)


class CopiedEnding(Seedless):
    """Pays for ending as it began: 1 for every three words with which an answer both begins and ends."""

    name = "copied_ending"

    def bonus(self, prompt: str, response: str) -> float:
        words = words_of(response)
        copied = max((n for n in range(len(words) // 2 + 1) if words[:n] == words[len(words) - n :]), default=0)
        return min(MOST, copied / 3)


class LongSentences(Seedless):
    """Pays for long sentences: 1 for every two words in the mean one beyond six, and as much less below."""

    name = "long_sentences"

    def bonus(self, prompt: str, response: str) -> float:
        sentences = sentences_of(response)
        mean = fmean(len(words_of(sentence)) for sentence in sentences) if sentences else 0.0
        return min(MOST, max(-2.0, (mean - 6) / 2))
