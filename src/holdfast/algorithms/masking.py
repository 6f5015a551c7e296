"""Sums, means and whitening over the tokens that count.

Shapes: B batch, T token. A mask is 1 (or True) on response tokens and 0 (or False) on everything else.
Positions outside the mask may hold anything, NaN included: they are replaced before any arithmetic.
"""

from __future__ import annotations

import torch
from torch import Tensor


def masked_sum(x_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """The sum of x over the mask, as a scalar; 0 for an empty mask."""
    return torch.where(mask_BT.bool(), x_BT, 0.0).sum()


def masked_mean(x_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """The mean of x over the mask, as a scalar; an empty mask has no mean and raises ValueError."""
    count = int(mask_BT.bool().sum())
    if count == 0:
        raise ValueError("The mean over an empty mask is not defined.")
    return masked_sum(x_BT, mask_BT) / count


def masked_whiten(x_BT: Tensor, mask_BT: Tensor, shift_mean: bool = True) -> Tensor:
    """x brought to unit variance, and to mean 0 if `shift_mean`, over the mask; 0 outside it.

    y = (x - mean) / sqrt(var + 1e-8) (+ mean if not shift_mean). The variance is the unbiased one, divided by
    n - 1, as in TRL; so at least two tokens are needed. "The N+ implementation details of RLHF with PPO"
    (Huang et al. 2024, arXiv:2403.17031) whitens rewards without and advantages with the shift of the mean.
    """
    mask_BT = mask_BT.bool()
    count = int(mask_BT.sum())
    if count < 2:
        raise ValueError(f"Whitening needs at least two tokens, and the mask holds {count}.")
    mean = masked_mean(x_BT, mask_BT)
    centred_BT = torch.where(mask_BT, x_BT - mean, 0.0)
    variance = centred_BT.square().sum() / (count - 1)
    whitened_BT = centred_BT * torch.rsqrt(variance + 1e-8)
    return whitened_BT if shift_mean else torch.where(mask_BT, whitened_BT + mean, 0.0)
