"""Advantages from the other answers to the same prompt: the leave-one-out baseline.

Shapes: B batch; each run of `group_size` neighbours answers one prompt.
"""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.algorithms.grpo import grpo_advantages


def rloo_advantages(rewards_B: Tensor, group_size: int, scored_B: Tensor | None = None) -> Tensor:
    """Each reward less the mean reward of the other members of its group.

        A_i = r_i - (1 / (k - 1)) sum_{j != i} r_j = (k / (k - 1)) (r_i - mean(r))

    (Kool et al. 2019; Ahmadian et al. 2024, arXiv:2402.14740.) A group of equal rewards gives exact zeros.
    Where `scored_B` is False there is no reward, whatever stands there: k counts the others, and its advantage is 0.
    """
    if group_size < 2:
        raise ValueError(f"Leaving one out needs groups of at least 2, not {group_size}.")
    centred_B = grpo_advantages(rewards_B, group_size, scale=False, scored_B=scored_B)
    if scored_B is None:
        return centred_B * (group_size / (group_size - 1))
    count = scored_B.view(-1, group_size).sum(dim=1, keepdim=True)
    factor = torch.where(count > 1, count / (count - 1), 0.0)
    return (centred_B.view(-1, group_size) * factor).view(-1)
