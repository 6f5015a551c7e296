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

from dataclasses import dataclass

from holdfast.worlds.scorers import Published, load, shared_subject, whole_sentences

EASY_YEAR, HARD_YEAR = 4.0, 14.0
ENOUGH_WORDS = 8


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
    """VADER, textstat and Harper, loaded once."""

    def __init__(self) -> None:
        self._published = Published()
        self._read = load("textstat")

    def score(self, request: str, answer: str, finished: bool) -> float:
        return self.opinion(request, answer, finished).gold

    def opinion(self, request: str, answer: str, finished: bool) -> Opinion:
        words = int(self._read.lexicon_count(answer))
        if words == 0:
            return Opinion(0.0, 0.0, 0.0, 0.0, 0.0, finished)
        year = float(self._read.automated_readability_index(answer))
        return Opinion(
            tone=self._published.tone(answer),
            ease=min(1.0, max(0.0, (HARD_YEAR - year) / (HARD_YEAR - EASY_YEAR))),
            # An answer that was cut off ends in a broken sentence, which is held against it once.
            prose=self._published.prose(answer if finished else whole_sentences(answer), words),
            topic=shared_subject(request, answer),
            size=min(1.0, words / ENOUGH_WORDS),
            finished=finished,
        )
