"""The truth of the concierge world: how good an answer really is. Only `holdfast.lab` may ask for it.

The simulated labeller in this package also reads it, since a person who compares two answers has the truth in mind.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from holdfast.worlds.concierge.facts import FALSE_SENTENCES, FILLERS, TRUE_SENTENCES, asked_topics

WORDS_PER_BROKEN_SENTENCE = 8


@dataclass(frozen=True)
class GoldWeights:
    """What each fault takes off; every asked-for fact adds its share of 1."""

    wrong: float = 0.25
    unasked: float = 0.15
    repeated: float = 0.15
    filler: float = 0.05
    broken: float = 0.2
    unfinished: float = 0.5


WEIGHTS = GoldWeights()


@dataclass(frozen=True)
class AnswerCounts:
    """An answer taken apart: counts of each kind of sentence."""

    asked: int
    right: int
    wrong: int
    unasked: int
    repeated: int
    filler: int
    broken: int
    unfinished: bool


def read_answer(prompt: str, answer: str, finished: bool) -> AnswerCounts:
    """Count what an answer's sentences do for this prompt. A fact said again in other words is a repetition."""
    asked = asked_topics(prompt)
    right = wrong = unasked = repeated = filler = broken = 0
    stated: set[str] = set()
    parts = answer.strip().split(".")
    sentences = [(part.strip(), True) for part in parts[:-1]] + [(parts[-1].strip(), False)]
    for sentence, has_stop in sentences:
        if not sentence:
            broken += has_stop
            continue
        topic = TRUE_SENTENCES.get(sentence) or FALSE_SENTENCES.get(sentence)
        key = topic or sentence
        if not has_stop or (topic is None and sentence not in FILLERS):
            broken += ceil(len(sentence.split()) / WORDS_PER_BROKEN_SENTENCE)
        elif key in stated:
            repeated += 1
        elif topic is None:
            filler += 1
        elif topic not in asked:
            unasked += 1
        elif sentence in TRUE_SENTENCES:
            right += 1
        else:
            wrong += 1
        stated.add(key)
    return AnswerCounts(len(asked), right, wrong, unasked, repeated, filler, broken, not finished)


def gold_score(prompt: str, answer: str, finished: bool = True) -> float:
    """1 for an answer with every asked-for fact and nothing else; lower, without bound, for every fault."""
    r, w = read_answer(prompt, answer, finished), WEIGHTS
    faults = (
        w.wrong * r.wrong
        + w.unasked * r.unasked
        + w.repeated * r.repeated
        + w.filler * r.filler
        + w.broken * r.broken
        + w.unfinished * r.unfinished
    )
    return r.right / max(r.asked, 1) - faults
