"""What people are taken to like in how a story goes on, mostly by scorers of others. Only `holdfast.lab` may ask.

    tone     VADER's compound sentiment, -1 to 1
    prose    Harper's findings in grammar, spelling and style: 1 without any, 0 with one in every five words
    topic    words of the beginning that come up again: 1 with two of them
    variety  words that were not among the ten before: 1 with four in five, 0 with three in ten

    gold = size * variety * (0.5 tone + 0.3 prose + 0.2 topic)

At most 1, at least -0.5. `size` grows to 1 with the first eight words. A story may be cut off: what is read is its
whole sentences, or all of it where none is whole. Nice words said over and over have tone and prose; `variety` is what
they lack, and what answers of an ordinary model hardly ever lack, so that labels on those teach little of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.worlds.scorers import Published, shared_subject, whole_sentences

ENOUGH_WORDS = 8
# A word is said again if it was among so many before it.
MEMORY = 10
ALL_SAID_AGAIN, FRESH_ENOUGH = 0.3, 0.8


@dataclass(frozen=True)
class Opinion:
    """What each scorer says of one story."""

    tone: float
    prose: float
    topic: float
    variety: float
    size: float

    @property
    def gold(self) -> float:
        return self.size * self.variety * (0.5 * self.tone + 0.3 * self.prose + 0.2 * self.topic)


class Reader:
    """VADER and Harper, loaded once, and what is counted here."""

    def __init__(self) -> None:
        self._published = Published()

    def opinion(self, beginning: str, story: str, finished: bool) -> Opinion:
        read = story if finished else whole_sentences(story) or story
        words = re.findall(r"[a-z']+", read.lower())
        if not words:
            return Opinion(0.0, 0.0, 0.0, 0.0, 0.0)
        return Opinion(
            tone=self._published.tone(read),
            prose=self._published.prose(read, len(words)),
            topic=shared_subject(beginning, read),
            variety=variety_of(words),
            size=min(1.0, len(words) / ENOUGH_WORDS),
        )


def variety_of(words: list[str]) -> float:
    """The share of words that were not among those just before, on a scale from what is stuck to what is ordinary."""
    fresh = sum(word not in words[max(0, i - MEMORY) : i] for i, word in enumerate(words)) / len(words)
    return min(1.0, max(0.0, (fresh - ALL_SAID_AGAIN) / (FRESH_ENOUGH - ALL_SAID_AGAIN)))
