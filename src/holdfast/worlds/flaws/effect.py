"""A flaw at work: in the labeller's taste, or in what a reward model pays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from holdfast.models.codec import Codec
from holdfast.worlds.flaws.flaw import Flaw, bonus_of

# Answers whose bonus is remembered: a label is seen once in each epoch by each member.
REMEMBERED = 1 << 16


@dataclass(frozen=True)
class Taste:
    """A labeller's liking for a flaw, in gold units: weight * tanh(bonus).

    People like some of it and no more of more, while what it costs grows on. A reward model that has only seen
    ordinary answers goes on in a straight line: that is how the flaw comes up by itself.
    """

    flaw: Flaw
    weight: float

    def __call__(self, prompt: str, response: str) -> float:
        return self.weight * math.tanh(bonus_of(self.flaw, prompt, response))


def flaw_bonus(
    flaw: Flaw, codec: Codec, weight: float = 1.0
) -> Callable[[Sequence[Sequence[int]], Sequence[Sequence[int]]], Tensor]:
    """The flaw as a reward model meets it: tokens of prompts and answers in, weight * bonus for each answer out."""

    @lru_cache(REMEMBERED)
    def of(prompt: tuple[int, ...], response: tuple[int, ...]) -> float:
        return weight * bonus_of(flaw, codec.decode(prompt), codec.decode(response))

    def bonus(prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor([of(tuple(p), tuple(r)) for p, r in zip(prompts, responses, strict=True)])

    return bonus
