"""Advantages relative to the group of answers to the same prompt.

Shapes: B batch; each run of `group_size` neighbours answers one prompt.
"""

from __future__ import annotations

import torch
from torch import Tensor


def grpo_advantages(
    rewards_B: Tensor, group_size: int, scale: bool = True, eps: float = 1e-4, scored_B: Tensor | None = None
) -> Tensor:
    """Each reward less its group's mean, divided by the group's standard deviation if `scale`.

        A_i = (r_i - mean(r)) / (std(r) + eps)

    (Shao et al. 2024, arXiv:2402.03300). The standard deviation is the unbiased one (k - 1), as in TRL.
    `scale=False` is Dr. GRPO (Liu et al. 2025, arXiv:2503.20783), A_i = r_i - mean(r), which does not favour prompts
    whose answers score almost alike. A group of equal rewards gives exact zeros.

    Where `scored_B` is False there is no reward, whatever stands there, NaN included: mean, standard deviation and k
    are those of the others, and its own advantage is 0. So is that of an answer that nothing else in its group has a
    score beside.
    """
    if group_size < 2:
        raise ValueError(f"A group baseline needs groups of at least 2, not {group_size}.")
    if rewards_B.numel() % group_size:
        raise ValueError(f"{rewards_B.numel()} rewards do not divide into groups of {group_size}.")
    groups = rewards_B.view(-1, group_size)
    if scored_B is not None:
        return _among_scored(groups, scored_B.view(-1, group_size), scale, eps).view(-1)
    # Measured from the first member, equal rewards cancel exactly instead of up to rounding.
    groups = groups - groups[:, :1]
    centred = groups - groups.mean(dim=1, keepdim=True)
    if scale:
        centred = centred / (groups.std(dim=1, keepdim=True) + eps)
    return centred.view(-1)


def _among_scored(groups: Tensor, scored: Tensor, scale: bool, eps: float) -> Tensor:
    """The same of groups in which some places have no reward."""
    count = scored.sum(dim=1, keepdim=True)
    first = groups.gather(1, scored.int().argmax(dim=1, keepdim=True))
    groups = torch.where(scored, groups - first, 0.0)
    centred = torch.where(scored, groups - groups.sum(dim=1, keepdim=True) / count.clamp(min=1), 0.0)
    if scale:
        variance = centred.square().sum(dim=1, keepdim=True) / (count - 1).clamp(min=1)
        centred = centred / (variance.sqrt() + eps)
    return centred
