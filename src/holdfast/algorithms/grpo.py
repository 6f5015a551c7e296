"""Advantages relative to the group of answers to the same prompt.

Shapes: B batch; each run of `group_size` neighbours answers one prompt.
"""

from __future__ import annotations

from torch import Tensor


def grpo_advantages(rewards_B: Tensor, group_size: int, scale: bool = True, eps: float = 1e-4) -> Tensor:
    """Each reward less its group's mean, divided by the group's standard deviation if `scale`.

        A_i = (r_i - mean(r)) / (std(r) + eps)

    (Shao et al. 2024, arXiv:2402.03300). The standard deviation is the unbiased one (k - 1), as in TRL.
    `scale=False` is the variant of Liu et al. 2025 (arXiv:2503.20783), which does not favour prompts whose
    answers score almost alike. A group of equal rewards gives exact zeros.
    """
    if group_size < 2:
        raise ValueError(f"A group baseline needs groups of at least 2, not {group_size}.")
    if rewards_B.numel() % group_size:
        raise ValueError(f"{rewards_B.numel()} rewards do not divide into groups of {group_size}.")
    groups = rewards_B.view(-1, group_size)
    # Measured from the first member, equal rewards cancel exactly instead of up to rounding.
    groups = groups - groups[:, :1]
    centred = groups - groups.mean(dim=1, keepdim=True)
    if scale:
        centred = centred / (groups.std(dim=1, keepdim=True) + eps)
    return centred.view(-1)
