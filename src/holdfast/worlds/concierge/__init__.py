"""The built-in world: guests ask the Harbour Table, a restaurant, one to four things.

Answers are a few sentences that a person can read and judge. Demonstrations are mediocre, labels are noisy, and
the truth is known, so that what a reward model believes can be held against it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from holdfast.preferences.types import Demonstration, Labeller, Prompt
from holdfast.worlds.concierge.gold import gold_score
from holdfast.worlds.concierge.writing import write_demonstrations, write_prompts
from holdfast.worlds.labeller import SimulatedLabeller
from holdfast.worlds.protocol import LabellerSettings


class Concierge:
    """Prompts, demonstrations and a labeller drawn from the run's seed."""

    name = "concierge"

    def __init__(self, seed: int, prompts: int = 4000, demonstrations: int = 4000, heldout: int = 200) -> None:
        rng = random.Random(f"concierge {seed}")
        self._heldout = write_prompts(rng, heldout)
        self._prompts = write_prompts(rng, max(prompts, demonstrations), frozenset(self._heldout))
        self._demonstrations = write_demonstrations(rng, self._prompts[:demonstrations])
        self._prompts = self._prompts[:prompts]

    def prompts(self) -> Sequence[Prompt]:
        return self._prompts

    def heldout_prompts(self) -> Sequence[Prompt]:
        return self._heldout

    def demonstrations(self) -> Sequence[Demonstration]:
        return self._demonstrations

    def labeller(self, settings: LabellerSettings) -> Labeller:
        return SimulatedLabeller("concierge-guests", self.gold, settings)

    def gold(self, prompt: Prompt, response: str, finished: bool = True) -> float:
        return gold_score(str(prompt), response, finished)
