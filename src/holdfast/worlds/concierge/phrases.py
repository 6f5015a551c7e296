"""Prompts as guests write them and demonstrations as a hurried member of staff answers them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import perm

from holdfast.preferences.comparison import Demonstration
from holdfast.worlds.concierge.facts import FILLERS, OPENINGS, TOPICS, Topic


@dataclass(frozen=True)
class Staff:
    """How often the writer of the demonstrations does each thing. Mediocre on purpose."""

    answers_a_topic: float = 0.75
    gets_it_right: float = 0.7
    adds_unasked: float = 0.25
    opens_with_filler: float = 0.4
    closes_with_filler: float = 0.4
    repeats: float = 0.1
    breaks_a_sentence: float = 0.1


STAFF = Staff()


def join_asks(asks: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return asks[0] if len(asks) == 1 else ", ".join(asks[:-1]) + " and " + asks[-1]


def write_prompt(rng: random.Random, topics: Sequence[Topic] = TOPICS, most_asked: int = 4) -> str:
    asked = rng.sample(topics, rng.randint(1, most_asked))
    return rng.choice(OPENINGS).format(asks=join_asks([rng.choice(t.asks) for t in asked]))


def possible_prompts(topics: int, most_asked: int) -> int:
    """How many different prompts can be written: an opening, an order of topics, a way to ask about each."""
    ways = len(TOPICS[0].asks)
    return len(OPENINGS) * sum(perm(topics, asked) * int(ways**asked) for asked in range(1, most_asked + 1))


def write_prompts(
    rng: random.Random,
    count: int,
    exclude: frozenset[str] = frozenset(),
    topics: Sequence[Topic] = TOPICS,
    most_asked: int = 4,
) -> list[str]:
    """`count` different prompts about one to `most_asked` of the topics, none of them in `exclude`."""
    seen: set[str] = set(exclude)
    prompts: list[str] = []
    while len(prompts) < count:
        prompt = write_prompt(rng, topics, most_asked)
        if prompt not in seen:
            seen.add(prompt)
            prompts.append(prompt)
    return prompts


def state(rng: random.Random, topic: Topic) -> str:
    return rng.choice(topic.true if rng.random() < STAFF.gets_it_right else topic.false)


def break_sentence(rng: random.Random, sentence: str) -> str:
    """Lose a word or the end of the sentence."""
    words = sentence.split()
    if rng.random() < 0.5:
        del words[rng.randrange(len(words))]
    else:
        words = words[: rng.randint(1, max(1, len(words) - 1))]
    return " ".join(words)


def write_answer(rng: random.Random, prompt: str, topics: Sequence[Topic] = TOPICS) -> str:
    """An answer with missing, wrong, unasked, repeated and broken sentences, as often as `STAFF` says."""
    asked = [t for t in TOPICS if any(a in prompt for a in t.asks)]
    asked.sort(key=lambda t: min(prompt.index(a) for a in t.asks if a in prompt))
    sentences = [state(rng, t) for t in asked if rng.random() < STAFF.answers_a_topic]
    while rng.random() < STAFF.adds_unasked:
        other = state(rng, rng.choice([t for t in topics if t not in asked]))
        sentences.insert(rng.randint(0, len(sentences)), other)
    if not sentences:
        sentences = [state(rng, rng.choice(asked))]
    if rng.random() < STAFF.repeats:
        sentences.append(rng.choice(sentences))
    if rng.random() < STAFF.breaks_a_sentence:
        i = rng.randrange(len(sentences))
        sentences[i] = break_sentence(rng, sentences[i])
    if rng.random() < STAFF.opens_with_filler:
        sentences.insert(0, rng.choice(FILLERS))
    if rng.random() < STAFF.closes_with_filler:
        sentences.append(rng.choice(FILLERS))
    return " ".join(f"{s}." for s in sentences)


def write_demonstrations(
    rng: random.Random, prompts: list[str], topics: Sequence[Topic] = TOPICS
) -> list[Demonstration]:
    return [Demonstration(prompt=p, response=write_answer(rng, p, topics)) for p in prompts]
