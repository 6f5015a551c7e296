"""Whether claims come true: what was said people prefer, against what they preferred.

Shapes: P pair. `probability_P` is the claimed probability of one outcome, `outcome_P` the share of people who chose it:
1, 0, or between for a tie or people who differ.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Bin:
    """Claims from `low` up to `high`: how many, their mean, and the share that came true."""

    low: float
    high: float
    count: int
    claimed: float
    observed: float


def brier(probability_P: Tensor, outcome_P: Tensor) -> float:
    """mean (claim - outcome)^2: 0 for a perfect prophet, 1/4 for one who always says 1/2 (Brier 1950)."""
    return float((probability_P.double() - outcome_P.double()).square().mean())


def ece(probability_P: Tensor, outcome_P: Tensor, bins: int = 10) -> float:
    """Expected calibration error: sum over bins of count/P * |claimed - observed|, bins of equal width.

    Few pairs make it too large: with n in a bin even perfect claims miss by about 0.4 / sqrt(n).
    """
    curve = reliability(probability_P, outcome_P, bins)
    return sum(b.count * abs(b.claimed - b.observed) for b in curve) / max(1, len(probability_P))


def reliability(probability_P: Tensor, outcome_P: Tensor, bins: int = 10) -> list[Bin]:
    """The reliability curve: mean claim and share come true in bins of equal width, empty ones left out."""
    probability_P, outcome_P = probability_P.double(), outcome_P.double()
    # The last bin takes a claim of exactly 1.
    place_P = (probability_P * bins).long().clamp(0, bins - 1)
    counts = torch.bincount(place_P, minlength=bins)
    claimed = torch.bincount(place_P, weights=probability_P, minlength=bins)
    observed = torch.bincount(place_P, weights=outcome_P, minlength=bins)
    return [
        Bin(i / bins, (i + 1) / bins, n, float(claimed[i]) / n, float(observed[i]) / n)
        for i, n in enumerate(counts.tolist())
        if n
    ]
