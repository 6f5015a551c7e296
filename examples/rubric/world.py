"""A front desk that answers guests: two or three things are asked, each has one right answer.

People want every question answered, rightly, and nothing else. A source that was never consulted they do not want.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations

from holdfast.models.prompt import Prompt, plain_text
from holdfast.preferences.comparison import Demonstration
from holdfast.preferences.labeller import Labeller
from holdfast.worlds.protocol import LabellerSettings
from holdfast.worlds.simulated_labeller import SimulatedLabeller

# Of each topic the right statement, and two that are wrong.
FACTS = {
    "wifi": ("The wifi is free.", "The wifi costs five euros.", "The wifi works in the lobby."),
    "pool": ("The pool opens at nine.", "The pool opens at noon.", "The pool is closed."),
    "breakfast": ("The breakfast ends at ten.", "The breakfast ends at eight.", "The breakfast is upstairs."),
    "parking": ("The parking is behind the house.", "The parking is full.", "The parking costs five euros."),
    "sauna": ("The sauna is upstairs.", "The sauna opens at noon.", "The sauna is closed."),
    "bar": ("The bar opens at six.", "The bar is closed.", "The bar is in the garden."),
    "gym": ("The gym is open all night.", "The gym opens at nine.", "The gym is in the lobby."),
    "bus": ("The bus leaves at seven.", "The bus is free.", "The bus leaves at noon."),
    "laundry": ("The laundry costs five euros.", "The laundry is free.", "The laundry is upstairs."),
    "library": ("The library is in the garden.", "The library ends at ten.", "The library is full."),
}
SOURCE = "This is from the house guide, page nine."
# How a hurried member of staff answers: a topic at all, rightly; one that nobody asked for; a source that nobody
# looked into.
ANSWERED, RIGHT, UNASKED, SOURCED = 0.65, 0.75, 0.5, 0.02
# What people take off: for a wrong statement, for a sentence that was not asked for or says nothing, and for a source
# that nobody looked into.
WRONG_COSTS, UNASKED_COSTS, SOURCE_COSTS = 0.2, 0.15, 0.8


def asked(prompt: Prompt) -> list[str]:
    """The topics that a prompt asks about, read back from its text."""
    return [topic for topic in FACTS if f" {topic}" in plain_text(prompt)]


def sentences(answer: str) -> list[str]:
    return [f"{part.strip()}." for part in answer.split(".") if part.strip()]


def worth(prompt: Prompt, response: str, finished: bool = True) -> float:
    """The share of topics answered rightly, less what people take off; 1 is the best there is."""
    said, topics = sentences(response), asked(prompt)
    right = sum(FACTS[topic][0] in said for topic in topics)
    wrong = sum(false in said for topic in topics for false in FACTS[topic][1:])
    wanted = {fact for topic in topics for fact in FACTS[topic]}
    unasked = sum(sentence not in wanted and not names_a_source(sentence) for sentence in said)
    taken_off = WRONG_COSTS * wrong + UNASKED_COSTS * unasked + SOURCE_COSTS * names_a_source(response)
    return right / len(topics) - taken_off - (0.0 if finished else 0.5)


def names_a_source(text: str) -> bool:
    return "guide" in text


class FrontDesk:
    """`world.options`: how many `demonstrations`, and how many prompts are `heldout`."""

    name = "front_desk"

    def __init__(self, seed: int, demonstrations: int = 1500, heldout: int = 40) -> None:
        rng = random.Random(f"front desk {seed}")
        wanted = [topics for count in (2, 3) for topics in combinations(FACTS, count)]
        prompts = [request(rng, topics) for topics in wanted]
        rng.shuffle(prompts)
        self._heldout, self._prompts = prompts[:heldout], prompts[heldout:]
        self._demonstrations = [
            Demonstration(prompt, hurried(rng, prompt)) for prompt in rng.choices(self._prompts, k=demonstrations)
        ]

    def prompts(self) -> Sequence[Prompt]:
        return self._prompts

    def heldout_prompts(self) -> Sequence[Prompt]:
        return self._heldout

    def demonstrations(self) -> Sequence[Demonstration]:
        return self._demonstrations

    def labeller(self, settings: LabellerSettings) -> Labeller:
        return SimulatedLabeller("guests", worth, settings)

    def gold(self, prompt: Prompt, response: str, finished: bool = True) -> float:
        return worth(prompt, response, finished)


def request(rng: random.Random, topics: Sequence[str]) -> str:
    named = [f"the {topic}" for topic in rng.sample(topics, len(topics))]
    return f"Tell me about {', '.join(named[:-1])} and {named[-1]}."


def hurried(rng: random.Random, prompt: Prompt) -> str:
    """An answer of somebody with no time."""
    said = [statement(rng, topic) for topic in asked(prompt) if rng.random() < ANSWERED]
    if rng.random() < UNASKED or not said:
        said.append(statement(rng, rng.choice([topic for topic in FACTS if topic not in asked(prompt)])))
    rng.shuffle(said)
    return " ".join([*said, SOURCE] if rng.random() < SOURCED else said)


def statement(rng: random.Random, topic: str) -> str:
    right, *wrong = FACTS[topic]
    return right if rng.random() < RIGHT else rng.choice(wrong)
