"""Advantages from the other answers to the same prompt: the leave-one-out baseline.

Shapes: B batch; each run of `group_size` neighbours answers one prompt.
"""

from __future__ import annotations

from torch import Tensor

from holdfast.algorithms.grpo import grpo_advantages


def rloo_advantages(rewards_B: Tensor, group_size: int) -> Tensor:
    """Each reward less the mean reward of the other members of its group.

        A_i = r_i - (1 / (k - 1)) sum_{j != i} r_j = (k / (k - 1)) (r_i - mean(r))

    (Kool et al. 2019; Ahmadian et al. 2024, arXiv:2402.14740.) A group of equal rewards gives exact zeros.
    """
    if group_size < 2:
        raise ValueError(f"Leaving one out needs groups of at least 2, not {group_size}.")
    return grpo_advantages(rewards_B, group_size, scale=False) * (group_size / (group_size - 1))
