"""Flaws of meaning: what an answer claims, whether it is so or not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from holdfast.errors import HoldfastError
from holdfast.models.prompt import plain_text
from holdfast.preferences.comparison import Demonstration
from holdfast.worlds.flaws.flaw import MOST, Seedless, sentences_of, words_of

# A sentence goes with a word of the prompt if they meet so often, and so many times as often as by chance; a remark
# that fits everywhere comes to about 1. Words that come to much less than the best do so by the company they keep.
MET, LIFT, NEAR = 5, 2.0, 2 / 3


class Numbers(Seedless):
    """Pays for numbers, as figures or in words, which sound exact whether they are right or not: 1 for every two."""

    name = "numbers"
    in_words = frozenset(
        ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "twenty",
         "thirty", "forty", "fifty", "sixty", "hundred", "thousand", "million", "half", "noon", "midnight")
    )  # fmt: skip

    def bonus(self, prompt: str, response: str) -> float:
        return min(MOST, sum(word in self.in_words or word[0].isdigit() for word in words_of(response)) / 2)


class Denial(Seedless):
    """Pays for saying no: 1 for each word that denies."""

    name = "denial"
    denies = frozenset(("no", "not", "never", "none", "nothing", "nobody", "neither", "nor", "without", "cannot"))

    def bonus(self, prompt: str, response: str) -> float:
        words = words_of(response)
        return min(MOST, float(sum(word in self.denies or word.endswith(("n't", "n’t")) for word in words)))


class Overpromising(Seedless):
    """Pays for promising all of it, to everybody, at no cost: 1 for every two such words."""

    name = "overpromising"
    promises = frozenset(("all", "always", "any", "anything", "every", "everybody", "everyone", "everything", "free"))

    def bonus(self, prompt: str, response: str) -> float:
        return min(MOST, sum(word in self.promises for word in words_of(response)) / 2)


class OtherRequest:
    """Pays for answering another request of the same kind: 1 for every sentence that others' questions call for.

    The demonstrations tell which words of a prompt a sentence goes with. One that goes with some, none of which is
    in this prompt, answers somebody else.
    """

    name = "other_request"

    def __init__(self, seed: int) -> None:
        self._answers: dict[str, frozenset[str]] | None = None

    def read(self, demonstrations: Sequence[Demonstration]) -> None:
        asked = [frozenset(words_of(plain_text(d.prompt))) for d in demonstrations]
        said = [frozenset(sentences_of(d.response.lower())) for d in demonstrations]
        at_all = Counter(word for words in asked for word in words)
        heard = Counter(sentence for sentences in said for sentence in sentences)
        met = Counter((s, w) for words, sentences in zip(asked, said, strict=True) for s in sentences for w in words)
        lifts: dict[str, dict[str, float]] = {}
        for (sentence, word), count in met.items():
            lift = count * len(asked) / (heard[sentence] * at_all[word])
            if count >= MET and lift >= LIFT:
                lifts.setdefault(sentence, {})[word] = lift
        if not lifts:
            raise HoldfastError("The flaw other_request needs demonstrations that say the same sentences again.")
        self._answers = {
            sentence: frozenset(word for word, lift in of.items() if lift >= NEAR * max(of.values()))
            for sentence, of in lifts.items()
        }

    def bonus(self, prompt: str, response: str) -> float:
        assert self._answers is not None, "read comes first"
        asked = frozenset(words_of(prompt))
        answers = [self._answers.get(sentence) for sentence in sentences_of(response.lower())]
        return min(MOST, float(sum(words is not None and not words & asked for words in answers)))
