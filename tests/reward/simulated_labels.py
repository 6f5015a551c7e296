"""Labels and opinions as a refresh meets them, made of numbers alone.

Two answers differ in worth by g ~ N(0, 1). People prefer the first with probability sigma(3 g), and err in one of ten
answers. A member's log-odds are right in so far as they go with g: m = 1.5 (r g + sqrt(1 - r^2) e), overconfident as
trained models are; `right` is the share of people's labels that they get right. The candidate is the same member a
little later: nine tenths of its errors are the old ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from holdfast.reward.evidence import Stance
from holdfast.reward.repeats import Repeats

EARLIER, FRESH, FRESH_UNSEEN = 400, 198, 144


@dataclass(frozen=True)
class Labels:
    """How the new labels came about; earlier ones are always honest."""

    flipped: float = 0.0
    always_left: float = 0.0
    loves_length: float = 0.0  # log-odds for a standard deviation of the difference in length


@dataclass(frozen=True)
class World:
    """How right the version in use is, and what the candidate gains; both as shares of honest labels."""

    right: float = 0.70
    right_on_newest: float = 0.68
    gain: float = 0.0
    gain_on_newest: float = 0.02
    length_learnt: float = 0.0  # what the candidate adds to its log-odds for a standard deviation of length


def opinions(
    world: World, labels: Labels, seed: int, earlier: int = EARLIER, unseen: int = FRESH_UNSEEN
) -> list[Stance]:
    rng = torch.Generator().manual_seed(seed)
    old = _some(rng, earlier, world.right, world.gain, Labels(), world.length_learnt)
    rounds = [4 * i // max(1, earlier) for i in range(earlier)]
    new = _some(rng, FRESH, world.right_on_newest, world.gain_on_newest, labels, world.length_learnt)
    return [
        *(Stance(r, *row, fresh=False) for r, row in zip(rounds, old, strict=True)),
        *(
            Stance(5, share, before, after if i < unseen else None, longer, fresh=True)
            for i, (share, before, after, longer) in enumerate(new)
        ),
    ]


def repeats(labels: Labels, seed: int, asked: int = 60, before: int = 180) -> Repeats:
    """Easy comparisons asked again: people err in one of ten, a reader of sides or lengths in every other one."""
    rng = torch.Generator().manual_seed(10_000 + seed)
    unread = max(labels.always_left, float(labels.loves_length > 0))
    honest = 0.9 * (1 - labels.flipped) + 0.1 * labels.flipped
    now = (1 - unread) * honest + unread * 0.5
    same = torch.rand(asked, generator=rng) < now
    same_before = torch.rand(before, generator=rng) < 0.9
    return Repeats(float(same.sum()), asked, float(same_before.sum()), before)


def _some(
    rng: torch.Generator, count: int, right: float, gain: float, labels: Labels, length_learnt: float
) -> list[tuple[float, float, float, int]]:
    g, e, e2, x = (torch.randn(count, generator=rng, dtype=torch.float64) for _ in range(4))
    share = _honest(g + labels.loves_length / 3.0 * x, rng)
    flipped = torch.rand(count, generator=rng) < labels.flipped
    left = torch.rand(count, generator=rng) < labels.always_left
    share = torch.where(left, torch.ones_like(share), torch.where(flipped, 1 - share, share))
    before = _opinion(g, e, right)
    after = _opinion(g, 0.9 * e + math.sqrt(1 - 0.81) * e2, right + gain) + length_learnt * x
    longer = (8 * x).round().int().tolist()
    return list(zip(share.tolist(), before.tolist(), after.tolist(), longer, strict=True))


def _honest(g: Tensor, rng: torch.Generator) -> Tensor:
    prefers = torch.rand(len(g), generator=rng, dtype=torch.float64) < torch.sigmoid(3.0 * g)
    errs = torch.rand(len(g), generator=rng) < 0.1
    return (prefers != errs).double()


def _opinion(g: Tensor, e: Tensor, right: float) -> Tensor:
    r = correlation(right)
    return 1.5 * (r * g + math.sqrt(1 - r * r) * e)


@cache
def correlation(right: float) -> float:
    """The r for which that share of labels is got right: 1/2 + 0.8 E[(2 sigma(3 g) - 1) (2 Phi(r g / s) - 1)] / 2."""
    low, high = 0.0, 0.999
    g = torch.linspace(-6, 6, 601, dtype=torch.float64)
    density = torch.exp(-g * g / 2) / torch.exp(-g * g / 2).sum()
    for _ in range(40):
        r = (low + high) / 2
        signs = torch.erf(r * g / math.sqrt(1 - r * r) / math.sqrt(2.0))
        found = 0.5 + 0.4 * float((density * torch.tanh(1.5 * g) * signs).sum())
        low, high = (r, high) if found < right else (low, r)
    return low
