"""Layouts: a request in plain English is answered with boxes on a page, as JSON.

A grammar makes every answer a layout, and says nothing of whether it is a good one: an empty page is as valid as any.
What is good is measured by formulas of the literature (gold.py), and people who compare two layouts see them drawn.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import ClassVar

from holdfast.errors import HoldfastError
from holdfast.models.prompt import Prompt, plain_text
from holdfast.models.tiny import JSON_PIECES
from holdfast.preferences.comparison import Demonstration
from holdfast.preferences.labeller import Labeller
from holdfast.worlds.layout.designs import designed
from holdfast.worlds.layout.gold import gold_score
from holdfast.worlds.layout.page import SCHEMA
from holdfast.worlds.layout.requests import Request, draw
from holdfast.worlds.protocol import LabellerSettings
from holdfast.worlds.simulated_labeller import SimulatedLabeller

# What can be asked for; beyond it drawing different requests would take for ever.
MOST_PROMPTS = 20_000


class Layouts:
    """Requests and a hurried designer's layouts, drawn from the run's seed."""

    name = "layout"
    drawing = "boxes"
    pieces = JSON_PIECES
    # A trial takes about half a minute on one core.
    lab_settings = (
        "policy.hidden=64",
        "policy.feed_forward=192",
        "policy.context=256",
        "rollout.max_new_tokens=200",  # room enough that no answer has to be led to its end
        "sft.batch=32",
        "sft.epochs=3",
        "reward.initial_comparisons=600",
        "run.rounds=4",
    )
    flaws: ClassVar = dict.fromkeys(("few_boxes", "giant_box", "corner", "tiny_boxes"), ())

    def __init__(self, seed: int, prompts: int = 4000, demonstrations: int = 4000, heldout: int = 200) -> None:
        count = max(prompts, demonstrations)
        if prompts < 1 or min(demonstrations, heldout) < 0 or count + heldout > MOST_PROMPTS:
            raise HoldfastError(f"The layout world has up to {MOST_PROMPTS:,} prompts; ask for at least one.")
        rng = random.Random(f"layout {seed}")
        requests: dict[str, Request] = {}
        while len(requests) < count + heldout:
            text, request = draw(rng)
            requests[text] = request
        texts = list(requests)
        self._heldout, others = texts[:heldout], texts[heldout:]
        self._demonstrations = [Demonstration(text, designed(rng, requests[text])) for text in others[:demonstrations]]
        self._prompts = others[:prompts]

    def prompts(self) -> Sequence[Prompt]:
        return self._prompts

    def heldout_prompts(self) -> Sequence[Prompt]:
        return self._heldout

    def demonstrations(self) -> Sequence[Demonstration]:
        return self._demonstrations

    def labeller(self, settings: LabellerSettings) -> Labeller:
        return SimulatedLabeller("layout-readers", self.gold, settings)

    def grammar(self) -> str:
        """Answers are boxes on the page, as many as fit."""
        return json.dumps(SCHEMA)

    def gold(self, prompt: Prompt, response: str, finished: bool = True) -> float:
        return gold_score(plain_text(prompt), response, finished)
