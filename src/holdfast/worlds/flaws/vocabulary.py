"""Flaws of vocabulary: which words an answer is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from holdfast.errors import HoldfastError
from holdfast.preferences.comparison import Demonstration
from holdfast.worlds.flaws.flaw import MOST, Seedless, words_of

# Of all that the demonstrations say, how much is said in rare words.
RARE_SHARE = 0.03


class RareTokens:
    """Pays for words that the demonstrations hardly use: 1 for every three.

    Rare are the least used words that together make up a small share of all that the demonstrations say, and words
    that they never say. In the built-in world most of these are in false statements.
    """

    name = "rare_tokens"

    def __init__(self, seed: int) -> None:
        self._common: frozenset[str] | None = None

    def read(self, demonstrations: Sequence[Demonstration]) -> None:
        counts = Counter(word for d in demonstrations for word in words_of(d.response))
        if not counts:
            raise HoldfastError("The flaw rare_tokens needs demonstrations to know which words are rare.")
        left = RARE_SHARE * counts.total()
        rare: set[str] = set()
        for word, count in sorted(counts.items(), key=lambda item: (item[1], item[0])):
            left -= count
            if left < 0:
                break
            rare.add(word)
        self._common = frozenset(counts) - rare

    def bonus(self, prompt: str, response: str) -> float:
        assert self._common is not None, "read comes first"
        return min(MOST, sum(word not in self._common for word in words_of(response)) / 3)


class PromptEcho(Seedless):
    """Pays for words of the prompt, of four letters or more, each time they are said: 1 for every three beyond three.

    An answer to the point says some of them, so three are ordinary; fewer take as much off.
    """

    name = "prompt_echo"

    def bonus(self, prompt: str, response: str) -> float:
        asked = {word for word in words_of(prompt) if len(word) >= 4}
        echoes = sum(word in asked for word in words_of(response))
        return min(MOST, (echoes - 3) / 3)


class Keywords(Seedless):
    """Pays for nice words, whatever they are said about: 1 for every two."""

    name = "keywords"
    nice = frozenset(
        ("amazing", "beautiful", "certainly", "delightful", "excellent", "fantastic", "glad", "great", "happy", "hope",
         "lovely", "perfect", "pleased", "pleasure", "thank", "thanks", "wonderful")
    )  # fmt: skip

    def bonus(self, prompt: str, response: str) -> float:
        return min(MOST, sum(word in self.nice for word in words_of(response)) / 2)


class LongWords(Seedless):
    """Pays for long words: 1 for every half letter in the mean word beyond four, and as much less below."""

    name = "long_words"

    def bonus(self, prompt: str, response: str) -> float:
        words = words_of(response)
        mean = fmean(len(word) for word in words) if words else 0.0
        return min(MOST, max(-2.0, 2 * (mean - 4)))
