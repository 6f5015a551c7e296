"""From scores to what each token is answerable for: advantages and returns, with the KL penalty in between.

Shapes: B answers, T response tokens (padded on the right).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from holdfast.algorithms.affirmation import affirmed
from holdfast.algorithms.gae import gae
from holdfast.algorithms.grpo import grpo_advantages
from holdfast.algorithms.kl import KLKind, kl_estimate
from holdfast.algorithms.masking import masked_whiten
from holdfast.algorithms.ppo import kl_penalised_rewards
from holdfast.algorithms.rloo import rloo_advantages

Advantage = Literal["gae", "rloo", "grpo", "dr_grpo"]


class Credit(NamedTuple):
    """Advantages and value targets of each token; KL to the reference and penalised reward of each answer.

    `taught_B` says which answers there is something to learn from; the others have advantages and returns of 0.
    """

    advantages_BT: Tensor
    returns_BT: Tensor
    kl_B: Tensor
    rewards_B: Tensor
    taught_B: Tensor


def assign_credit(
    logprobs_BT: Tensor,
    reference_logprobs_BT: Tensor,
    values_BT: Tensor,
    scores_B: Tensor,
    mask_BT: Tensor,
    beta: float,
    advantage: Advantage = "gae",
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
    group_size: int = 1,
    whiten: bool = True,
    estimator: KLKind = "k1",
    offset: float = 0.0,
    scored_B: Tensor | None = None,
) -> Credit:
    """Credit from scores and `beta` times the KL penalty, by GAE or against the other answers to a prompt.

    The mask is of the tokens that were free; an answer without any counts in its group's baseline, and learns nothing.

    `group_size` neighbours answer one prompt; all but GAE need at least 2. With beta 0 the penalty is left out of
    the reward, as it has to be where it is part of the loss. `offset` is added to every advantage in the end.

    An answer whose place in `scored_B` is False could not be scored, and whatever is in `scores_B` there is not read.
    It teaches nothing: neither itself, nor as part of its group's baseline or of the spread that whitening divides by.
    Nor does, against the other answers to a prompt, the only one that has a score. Its reward is NaN.
    """
    scored_B = torch.ones_like(scores_B, dtype=torch.bool) if scored_B is None else scored_B
    penalty_BT = kl_estimate(logprobs_BT, reference_logprobs_BT, estimator) * mask_BT
    rewards_BT = kl_penalised_rewards(torch.where(scored_B, scores_B, 0.0), penalty_BT, mask_BT, beta)
    rewards_B = torch.where(scored_B, rewards_BT.sum(1), torch.nan)
    if advantage == "gae":
        taught_B = scored_B & mask_BT.any(1)
        advantages_BT, returns_BT = (
            x_BT * taught_B[:, None] for x_BT in gae(rewards_BT, values_BT, mask_BT, gamma, lam)
        )
        # One token alone has no spread to whiten by.
        if whiten and int((mask_BT * taught_B[:, None]).sum()) > 1:
            advantages_BT = masked_whiten(advantages_BT, mask_BT * taught_B[:, None])
    else:
        advantages_B = _against_the_others(rewards_B, advantage, group_size, None if scored_B.all() else scored_B)
        taught_B = accompanied(scored_B, group_size) & mask_BT.any(1)
        advantages_BT, returns_BT = advantages_B[:, None] * mask_BT, torch.zeros_like(rewards_BT)
    if offset:
        advantages_BT = affirmed(advantages_BT, mask_BT * taught_B[:, None], offset)
    kl_BT = (logprobs_BT - reference_logprobs_BT) * mask_BT
    return Credit(advantages_BT, returns_BT, kl_BT.sum(1), rewards_B, taught_B)


def _against_the_others(rewards_B: Tensor, advantage: Advantage, group_size: int, scored_B: Tensor | None) -> Tensor:
    """advantages_B by the other answers to the same prompt."""
    if advantage == "rloo":
        return rloo_advantages(rewards_B, group_size, scored_B)
    return grpo_advantages(rewards_B, group_size, scale=advantage == "grpo", scored_B=scored_B)


def accompanied(scored_B: Tensor, group_size: int) -> Tensor:
    """Which scored answers have another one with a score in their group to be compared with."""
    scored = scored_B.view(-1, group_size)
    return (scored & (scored.sum(dim=1, keepdim=True) > 1)).view(-1)
