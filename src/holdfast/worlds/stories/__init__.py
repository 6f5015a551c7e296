"""Beginnings of children's stories for any pretrained model to go on with; scorers written by others are the people.

There are no demonstrations, and nothing is fine-tuned first: the reference is the model as it comes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product

from holdfast.errors import HoldfastError
from holdfast.models.prompt import Prompt, plain_text
from holdfast.preferences.comparison import Demonstration
from holdfast.preferences.labeller import Labeller
from holdfast.worlds.protocol import LabellerSettings
from holdfast.worlds.simulated_labeller import SimulatedLabeller
from holdfast.worlds.stories.gold import Reader

HE, SHE = ("Ben", "Jack", "Max", "Sam", "Tim", "Tom"), ("Amy", "Anna", "Lily", "Lucy", "Mia", "Sue")
PLACES = ("beach", "farm", "garden", "house", "lake", "park", "river", "woods", "zoo")
THINGS = ("ball", "bear", "bike", "bird", "boat", "book", "box", "cake", "cat", "doll", "dog", "hat", "kite", "tree")
# Short, and each ends in a blank: a model that was given no line break to read goes on after it.
OPENINGS = (
    "{name} had a {thing}. ",
    "{name} saw a {thing}. ",
    "{name} lost the {thing}. ",
    "One day, {name} had a {thing}. ",
    "{name} went to the {place}. {They} ",
    "{name} had a {thing} at the {place}. ",
    "The {thing} was in the {place}. {name} ",
)


class Stories:
    """Beginnings, all different, drawn by the seed; `heldout` of them never train. Short, for models of any context."""

    name = "stories"
    # A trial is a few minutes on one core with a model of a million weights that reads and writes characters.
    lab_settings = (
        "run.steps_per_round=4",
        "rollout.max_new_tokens=56",
        "reward.initial_comparisons=1000",
        "refresh.comparisons=150",
        "preferences.per_round=40",
        "gate.repeats=20",
        "ppo.batch=32",
        "audit.pairs=12",
        "audit.more_pairs=36",
        # A story is cut off where the room ends, and nobody minds.
        "reward.unfinished_penalty=0.0",
    )

    def __init__(self, seed: int, prompts: int = 1000, heldout: int = 24) -> None:
        heroes = [*((name, "He") for name in HE), *((name, "She") for name in SHE)]
        # In their order, each once: not every opening has a place in it.
        written = list(
            dict.fromkeys(
                opening.format(name=name, They=they, place=place, thing=thing)
                for opening, (name, they), place, thing in product(OPENINGS, heroes, PLACES, THINGS)
            )
        )
        if prompts < 1 or heldout < 0 or prompts + heldout > len(written):
            raise HoldfastError(
                f"The stories world has {len(written)} beginnings; ask for at least one, and for no more than that "
                "with those held out."
            )
        drawn: list[Prompt] = list(random.Random(f"stories {seed}").sample(written, prompts + heldout))
        self._heldout, self._prompts = drawn[:heldout], drawn[heldout:]
        self._reader = Reader()

    def prompts(self) -> Sequence[Prompt]:
        return self._prompts

    def heldout_prompts(self) -> Sequence[Prompt]:
        return self._heldout

    def demonstrations(self) -> Sequence[Demonstration]:
        return []

    def labeller(self, settings: LabellerSettings) -> Labeller:
        return SimulatedLabeller("stories-readers", self.gold, settings)

    def gold(self, prompt: Prompt, response: str, finished: bool = True) -> float:
        return self._reader.opinion(plain_text(prompt), response, finished).gold
