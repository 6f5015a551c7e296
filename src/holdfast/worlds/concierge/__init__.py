"""The built-in world: guests ask the Harbour Table, a restaurant, one to three things.

Answers are a few sentences that a person can read and judge. Demonstrations are mediocre, labels are noisy, and
the truth is known, so that what a reward model believes can be held against it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from holdfast.errors import HoldfastError
from holdfast.models.prompt import Prompt
from holdfast.preferences.comparison import Demonstration
from holdfast.preferences.labeller import Labeller
from holdfast.worlds.concierge.facts import TOPICS
from holdfast.worlds.concierge.gold import gold_score
from holdfast.worlds.concierge.phrases import possible_prompts, write_demonstrations, write_prompts
from holdfast.worlds.protocol import LabellerSettings
from holdfast.worlds.simulated_labeller import SimulatedLabeller


class Concierge:
    """Prompts, demonstrations and a labeller drawn from the run's seed. More topics make a harder world."""

    name = "concierge"

    def __init__(
        self,
        seed: int,
        prompts: int = 4000,
        demonstrations: int = 4000,
        heldout: int = 200,
        topics: int = 8,
        most_asked: int = 3,
    ) -> None:
        if not (1 <= most_asked < topics <= len(TOPICS)):
            raise HoldfastError(
                f"The concierge world knows {len(TOPICS)} topics; topics has to be at most that, and above most_asked."
            )
        count, possible = max(prompts, demonstrations), possible_prompts(topics, most_asked)
        if prompts < 1 or min(demonstrations, heldout) < 0 or 2 * (count + heldout) > possible:
            raise HoldfastError(
                f"The concierge world has no {count + heldout} different prompts about 1 to {most_asked} of {topics} "
                "topics to choose from; ask for at least one, and for fewer than half of what can be written."
            )
        rng = random.Random(f"concierge {seed}")
        known = TOPICS[:topics]
        self._heldout = write_prompts(rng, heldout, topics=known, most_asked=most_asked)
        self._prompts = write_prompts(rng, count, frozenset(self._heldout), known, most_asked)
        self._demonstrations = write_demonstrations(rng, self._prompts[:demonstrations], known)
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
