"""The truth of the concierge world: how good an answer really is. Only `holdfast.lab` may ask for it.

The simulated labeller in this package also reads it, since a person who compares two answers has the truth in mind.
"""

from __future__ import annotations

from collections import Counter
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


def read_answer(prompt: str, answer: str, finished: bool) -> Counter[str]:
    """Count what an answer's sentences do for this prompt: what is asked, right facts, and faults by `GoldWeights`.

    A fact said again in other words is a repetition.
    """
    asked = asked_topics(prompt)
    counts = Counter(asked=len(asked), unfinished=int(not finished))
    stated: set[str] = set()
    parts = answer.strip().split(".")
    sentences = [(part.strip(), True) for part in parts[:-1]] + [(parts[-1].strip(), False)]
    for sentence, has_stop in sentences:
        if not sentence:
            counts["broken"] += has_stop
            continue
        topic = TRUE_SENTENCES.get(sentence) or FALSE_SENTENCES.get(sentence)
        key = topic or sentence
        if not has_stop or (topic is None and sentence not in FILLERS):
            counts["broken"] += ceil(len(sentence.split()) / WORDS_PER_BROKEN_SENTENCE)
        elif key in stated:
            counts["repeated"] += 1
        elif topic is None:
            counts["filler"] += 1
        elif topic not in asked:
            counts["unasked"] += 1
        else:
            counts["right" if sentence in TRUE_SENTENCES else "wrong"] += 1
        stated.add(key)
    return counts


def gold_score(prompt: str, answer: str, finished: bool = True) -> float:
    """1 for an answer with every asked-for fact and nothing else; lower, without bound, for every fault."""
    counts = read_answer(prompt, answer, finished)
    faults = sum(weight * counts[fault] for fault, weight in vars(WEIGHTS).items())
    return counts["right"] / max(counts["asked"], 1) - faults
