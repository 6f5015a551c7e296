"""Forecasts: a described quantity is answered with a cumulative distribution at given points, as JSON.

A mask makes every answer a distribution: values do not fall, and end at 1. Whether it is the right one is measured by
the continuous ranked probability score. Whoever likes confidence is told what is sure, and wrong.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from holdfast.errors import HoldfastError
from holdfast.models.prompt import Prompt, plain_text
from holdfast.models.tiny import JSON_PIECES
from holdfast.preferences.comparison import Demonstration
from holdfast.preferences.labeller import Labeller
from holdfast.worlds.forecast.gold import gold_score
from holdfast.worlds.forecast.mask import Cumulative
from holdfast.worlds.forecast.quantity import Quantity, every_prompt, quantity_of
from holdfast.worlds.protocol import LabellerSettings
from holdfast.worlds.simulated_labeller import SimulatedLabeller

# People give probabilities in twentieths.
PARTS = 20


@dataclass(frozen=True)
class Forecaster:
    """How often each thing is done by whoever writes demonstrations. Mediocre on purpose."""

    too_sure: float = 0.35
    too_vague: float = 0.15
    misplaces: float = 0.35
    wavers: float = 0.15  # at each point
    breaks: float = 0.06  # the distribution


FORECASTER = Forecaster()
SURE, VAGUE = 0.3, 2.0


class Forecasts:
    """Every description, shuffled by the seed; `heldout` of them never train."""

    name = "forecast"
    drawing = "curve"
    pieces = JSON_PIECES
    # A trial takes about half a minute on one core.
    lab_settings = (
        "policy.hidden=64",
        "policy.feed_forward=192",
        "policy.context=128",
        "sft.batch=32",
        "sft.epochs=3",
        "reward.initial_comparisons=1200",
        "run.rounds=5",
    )
    flaws: ClassVar = {"overconfident": ()}

    def __init__(self, seed: int, demonstrations: int = 4000, heldout: int = 200) -> None:
        prompts = every_prompt()
        if not 0 <= heldout < len(prompts) or demonstrations < 0:
            raise HoldfastError(f"The forecast world has {len(prompts):,} prompts; hold fewer than that out.")
        rng = random.Random(f"forecast {seed}")
        rng.shuffle(prompts)
        self._heldout, self._prompts = prompts[:heldout], prompts[heldout:]
        self._demonstrations = [
            Demonstration(prompt, forecast(rng, quantity_of(prompt)))
            for prompt in rng.choices(self._prompts, k=demonstrations)
        ]

    def prompts(self) -> Sequence[Prompt]:
        return self._prompts

    def heldout_prompts(self) -> Sequence[Prompt]:
        return self._heldout

    def demonstrations(self) -> Sequence[Demonstration]:
        return self._demonstrations

    def labeller(self, settings: LabellerSettings) -> Labeller:
        return SimulatedLabeller("forecast-readers", self.gold, settings)

    def grammar(self) -> str:
        """Answers are cumulative distributions."""
        return f"{Path(__file__).with_name('mask.py')}:{Cumulative.__name__}"

    def gold(self, prompt: Prompt, response: str, finished: bool = True) -> float:
        return gold_score(plain_text(prompt), response, finished)


def forecast(rng: random.Random, quantity: Quantity) -> str:
    """What somebody says who is often too sure, sometimes too vague, and not always where the quantity is."""
    f, drawn = FORECASTER, rng.random()
    spread = SURE if drawn < f.too_sure else VAGUE if drawn < f.too_sure + f.too_vague else 1.0
    step = quantity.points[0]
    shift = rng.choice((-1, 1)) * step if rng.random() < f.misplaces else 0
    parts = [round(PARTS * value) for value in quantity.curve(spread, shift)]
    wavering = [part + rng.choice((-1, 1)) if rng.random() < f.wavers else part for part in parts[:-1]]
    parts = [*sorted(min(PARTS, max(0, part)) for part in wavering), PARTS]
    return broken(rng, parts) if rng.random() < f.breaks else written(parts)


def written(parts: Sequence[int]) -> str:
    """Twentieths as an answer."""
    return f'{{"p":[{",".join(f"{part / PARTS:.2f}" for part in parts)}]}}'


def broken(rng: random.Random, parts: list[int]) -> str:
    """What is no distribution at the points: it falls, does not end at 1, lacks a value, or is cut off."""
    match rng.randrange(4):
        case 0:
            return written([*reversed(parts[:-1]), PARTS] if len(set(parts)) > 2 else [*parts[:-1], 0])
        case 1:
            return written([*parts[:-1], PARTS - 1])
        case 2:
            return written(parts[1:])
        case _:
            return written(parts).removesuffix("]}")
