"""The Bradley-Terry model of preference: the probability of a win from the difference of two scores.

Shapes: P pair; further dimensions (ensemble members, say) are averaged over alike.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid


def win_probability(score_a: Tensor, score_b: Tensor) -> Tensor:
    """P(a beats b) = sigma(score_a - score_b)  (Bradley and Terry 1952)."""
    return torch.sigmoid(score_a - score_b)


def pair_accuracy(chosen_P: Tensor, rejected_P: Tensor) -> Tensor:
    """The share of pairs whose chosen side scores higher; equal scores count as half right."""
    wins, ties = (chosen_P > rejected_P).float(), (chosen_P == rejected_P).float()
    return (wins + 0.5 * ties).mean()


def bradley_terry_loss(
    chosen_P: Tensor,
    rejected_P: Tensor,
    margin: float | Tensor = 0.0,
    label_smoothing: float = 0.0,
    centring: float = 0.0,
    share_P: Tensor | None = None,
    weight_P: Tensor | None = None,
) -> Tensor:
    """The mean negative log-likelihood of the preferences, with optional margin, smoothing and centring.

        d = chosen - rejected - margin
        L = mean(-[(1 - e) log sigma(d) + e log sigma(-d)]) + centring * mean((chosen + rejected)^2)

    The margin is that of Llama 2 (arXiv:2307.09288, equation 2); smoothing by e assumes that a share e of the
    labels is flipped; centring keeps scores near zero, which differences alone leave free (Eisenstein et al.
    2023, arXiv:2312.09244). `share_P` is the share of people who preferred `chosen` (1 if not given, 0.5 for
    a tie): the target 1 - e becomes share (1 - e) + (1 - share) e. `weight_P` multiplies each pair's part of both
    means; they are still divided by the number of pairs, so that a pair of weight 1/2 has half the say of a whole one.
    """
    if not 0.0 <= label_smoothing <= 0.5:
        raise ValueError(f"Label smoothing lies between 0 and 0.5, not at {label_smoothing}.")
    share = torch.ones_like(chosen_P) if share_P is None else share_P
    target = share * (1.0 - label_smoothing) + (1.0 - share) * label_smoothing
    difference = chosen_P - rejected_P - margin
    likelihood = target * logsigmoid(difference) + (1.0 - target) * logsigmoid(-difference)
    squared = (chosen_P + rejected_P).square()
    if weight_P is not None:
        likelihood, squared = weight_P * likelihood, weight_P * squared
    return -likelihood.mean() + centring * squared.mean()
