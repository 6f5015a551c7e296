"""Generalised advantage estimation.

Shapes: B batch, T token.
"""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def gae(rewards_BT: Tensor, values_BT: Tensor, mask_BT: Tensor, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """Advantages and value targets (returns) of right-padded responses; both 0 outside the mask.

        delta_t = r_t + gamma V_{t+1} - V_t
        A_t     = delta_t + gamma lam A_{t+1}
        R_t     = A_t + V_t

    (Schulman et al. 2015, arXiv:1506.02438, equations 11-16). The response ends at its last token: V and A
    after it are 0. A token outside the mask between two others was no step of the policy's: t + 1 is the one after it.
    """
    mask_BT = mask_BT.bool()
    values_BT = torch.where(mask_BT, values_BT, 0.0)
    rewards_BT = torch.where(mask_BT, rewards_BT, 0.0)
    advantages_BT = torch.zeros_like(values_BT)
    next_advantage_B = values_BT.new_zeros(values_BT.shape[0])
    next_value_B = next_advantage_B
    for t in reversed(range(values_BT.shape[1])):
        delta_B = rewards_BT[:, t] + gamma * next_value_B - values_BT[:, t]
        within_B = mask_BT[:, t]
        next_advantage_B = torch.where(within_B, delta_B + gamma * lam * next_advantage_B, next_advantage_B)
        next_value_B = torch.where(within_B, values_BT[:, t], next_value_B)
        advantages_BT[:, t] = torch.where(within_B, next_advantage_B, 0.0)
    return advantages_BT, advantages_BT + values_BT
