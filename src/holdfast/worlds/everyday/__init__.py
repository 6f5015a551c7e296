"""Short everyday requests for a model that can already chat; scorers written by others stand in for people.

The requests are a file of this package. What counts as good is kind, easy to read, well written, about what was asked,
and brought to an end: see `gold`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from holdfast.data.formats import read_prompts
from holdfast.errors import HoldfastError
from holdfast.models.prompt import Message, Prompt
from holdfast.preferences.comparison import Demonstration
from holdfast.preferences.labeller import Labeller
from holdfast.randomness import generator
from holdfast.worlds.everyday.gold import Scorers
from holdfast.worlds.protocol import LabellerSettings
from holdfast.worlds.simulated_labeller import SimulatedLabeller

REQUESTS = Path(__file__).with_name("requests.jsonl")
INSTRUCTION = "Answer kindly, in one or two short sentences."


class Everyday:
    """Requests, shuffled by the seed, each below an instruction to the model; `heldout` of them never train."""

    name = "everyday"

    def __init__(self, seed: int, heldout: int = 40, instruction: str = INSTRUCTION) -> None:
        self._scorers = Scorers()
        requests = [str(prompt) for prompt in read_prompts(REQUESTS)]
        if not 0 <= heldout < len(requests):
            raise HoldfastError(f"The everyday world has {len(requests)} requests; hold fewer than that out.")
        order = torch.randperm(len(requests), generator=generator(seed, "everyday requests")).tolist()
        turns = (Message("system", instruction),) if instruction else ()
        asked: list[Prompt] = [(*turns, Message("user", requests[i])) for i in order]
        self._heldout, self._prompts = asked[:heldout], asked[heldout:]

    def prompts(self) -> Sequence[Prompt]:
        return self._prompts

    def heldout_prompts(self) -> Sequence[Prompt]:
        return self._heldout

    def demonstrations(self) -> Sequence[Demonstration]:
        return []

    def labeller(self, settings: LabellerSettings) -> Labeller:
        return SimulatedLabeller("everyday-people", self.gold, settings)

    def gold(self, prompt: Prompt, response: str, finished: bool = True) -> float:
        request = prompt if isinstance(prompt, str) else prompt[-1].content
        return self._scorers.score(request, response, finished)
