"""How K members' opinions become one reward.

Shapes: K member, B answers. Scores are standardised: 0 is the reference's mean, 1 its standard deviation.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from holdfast.errors import HoldfastError

Aggregation = Literal["mean", "median", "worst", "uncertainty", "agreement", "averaged"]

# Weight of the members' variance. On standardised scores it takes off a tenth of a reference deviation where members
# differ by one.
UNCERTAINTY_LAMBDA = 0.1


def aggregate(scores_KB: Tensor, kind: Aggregation, uncertainty_lambda: float = UNCERTAINTY_LAMBDA) -> Tensor:
    """One reward per answer.

    mean         1/K sum_k r_k
    median       the middle member (mean of the two middle ones for even K)
    worst        min_k r_k                                             (WCO, Coste et al. 2023)
    uncertainty  mean_k r_k - lambda * var_k r_k, population variance   (UWO, Coste et al. 2023)
    agreement    the part of the reward that every member grants: min_k r_k where all are above the reference's mean,
                 max_k r_k where all are below it, and 0 where they disagree about the side
    averaged     the score of one member whose weights are the mean of several (WARM, Rame et al. 2024); that mean is
                 taken when members are fitted, so there is one row here
    """
    if kind == "averaged" and len(scores_KB) > 1:
        raise HoldfastError(
            f"This ensemble has {len(scores_KB)} members, which were not averaged into one when they were trained: "
            "take another aggregation, or train it with reward.aggregation = averaged."
        )
    if kind in ("mean", "averaged"):
        return scores_KB.mean(0)
    if kind == "median":
        return scores_KB.quantile(0.5, dim=0)
    lowest_B, highest_B = scores_KB.amin(0), scores_KB.amax(0)
    if kind == "worst":
        return lowest_B
    if kind == "uncertainty":
        return scores_KB.mean(0) - uncertainty_lambda * scores_KB.var(0, unbiased=False)
    if kind == "agreement":
        return torch.where(lowest_B > 0, lowest_B, torch.where(highest_B < 0, highest_B, torch.zeros_like(lowest_B)))
    raise ValueError(f"unknown aggregation {kind!r}")


def spread(scores_KB: Tensor) -> Tensor:
    """Disagreement per answer: the standard deviation over members (0 for a single member)."""
    return scores_KB.std(0, unbiased=False)


def bounded(reward_B: Tensor, reference_B: Tensor) -> Tensor:
    """sigmoid(r - r_ref): bounded shaping against a reference answer to the same prompt (PAR, 2502.18770)."""
    return torch.sigmoid(reward_B - reference_B)
