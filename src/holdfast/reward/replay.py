"""Which labels a refresh trains on: some comparisons never train, and old ones are replayed evenly over the rounds."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

import torch

Item = TypeVar("Item")


def holdout_place(comparison_id: str) -> float:
    """Where an id falls between 0 and 1; below `reward.holdout` the comparison is held out.

    The id decides alone, so a held-out comparison stays so for the whole run, whatever is collected after it.
    """
    digest = hashlib.sha256(f"holdout {comparison_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def draw_replay(generations: Sequence[Sequence[Item]], wanted: int, rng: torch.Generator) -> list[Item]:
    """`wanted` items without replacement (all, where there are fewer), drawn evenly over the generations."""
    generations = [generation for generation in generations if generation]
    if len(generations) > wanted:
        # Not even one of each: which rounds are heard is drawn too, or a long run would only ever hear its first ones.
        heard = sorted(torch.randperm(len(generations), generator=rng)[:wanted].tolist())
        return [_one_of(generations[i], rng) for i in heard]
    places = [torch.randperm(len(generation), generator=rng) for generation in generations]
    chosen: list[Item] = []
    turn = 0
    while len(chosen) < wanted and any(turn < len(generation) for generation in generations):
        # One from every generation in turn; a generation that has run out lets the others go on.
        turn += 1
        left = [(g, p) for g, p in zip(generations, places, strict=True) if len(g) >= turn]
        chosen += [generation[int(place[-turn])] for generation, place in left[: wanted - len(chosen)]]
    return chosen


def _one_of(generation: Sequence[Item], rng: torch.Generator) -> Item:
    return generation[int(torch.randint(len(generation), (1,), generator=rng))]
