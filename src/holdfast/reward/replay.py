"""Which labels a refresh trains on: some comparisons never train, and old ones are replayed evenly over the rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch

from holdfast.randomness import place_of

Item = TypeVar("Item")

FOLDS = 5


def holdout_place(comparison_id: str) -> float:
    """Where an id falls between 0 and 1; below `reward.holdout` the comparison is held out.

    The id decides alone, so a held-out comparison stays so for the whole run, whatever is collected after it.
    """
    return place_of(f"holdout {comparison_id}")


def fold_of(comparison_id: str) -> int:
    """The fifth of all comparisons that one belongs to, for good; member k learns from all folds but its own."""
    return int(FOLDS * place_of(f"fold {comparison_id}"))


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


def even_shares(sizes: Sequence[int], most: int) -> list[int]:
    """How many to take of each group, `most` in all: the same of each, and more where others have too few."""
    shares, left = [0] * len(sizes), most
    for done, place in enumerate(sorted(range(len(sizes)), key=lambda i: sizes[i])):
        shares[place] = min(sizes[place], left // (len(sizes) - done))
        left -= shares[place]
    return shares
