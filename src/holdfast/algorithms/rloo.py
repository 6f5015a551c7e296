"""Advantages from the other answers to the same prompt: the leave-one-out baseline.

Shapes: B batch; each run of `group_size` neighbours answers one prompt.
"""

from __future__ import annotations

from torch import Tensor


def rloo_advantages(rewards_B: Tensor, group_size: int) -> Tensor:
    """Each reward less the mean reward of the other members of its group.

        A_i = r_i - (1 / (k - 1)) sum_{j != i} r_j = (k / (k - 1)) (r_i - mean(r))

    (Kool et al. 2019; Ahmadian et al. 2024, arXiv:2402.14740.) A group of equal rewards gives exact zeros.
    """
    if group_size < 2:
        raise ValueError(f"Leaving one out needs groups of at least 2, not {group_size}.")
    if rewards_B.numel() % group_size:
        raise ValueError(f"{rewards_B.numel()} rewards do not divide into groups of {group_size}.")
    groups = rewards_B.view(-1, group_size)
    # Measured from the first member, equal rewards cancel exactly instead of up to rounding.
    groups = groups - groups[:, :1]
    centred = groups - groups.mean(dim=1, keepdim=True)
    return (centred * (group_size / (group_size - 1))).view(-1)
