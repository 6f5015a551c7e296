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

Advantage = Literal["gae", "rloo", "grpo"]


class Credit(NamedTuple):
    """Advantages and value targets of each token; KL to the reference and penalised reward of each answer."""

    advantages_BT: Tensor
    returns_BT: Tensor
    kl_B: Tensor
    rewards_B: Tensor


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
) -> Credit:
    """Credit from scores and `beta` times the KL penalty, by GAE or against the other answers to a prompt.

    `group_size` neighbours answer one prompt; RLOO and GRPO need at least 2. With beta 0 the penalty is left out of
    the reward, as it has to be where it is part of the loss. `offset` is added to every advantage in the end.
    """
    penalty_BT = kl_estimate(logprobs_BT, reference_logprobs_BT, estimator) * mask_BT
    rewards_BT = kl_penalised_rewards(scores_B, penalty_BT, mask_BT, beta)
    if advantage == "gae":
        advantages_BT, returns_BT = gae(rewards_BT, values_BT, mask_BT, gamma, lam)
        # One token alone has no spread to whiten by.
        if whiten and int(mask_BT.sum()) > 1:
            advantages_BT = masked_whiten(advantages_BT, mask_BT)
    else:
        group_advantages = rloo_advantages if advantage == "rloo" else grpo_advantages
        advantages_BT = group_advantages(rewards_BT.sum(1), group_size)[:, None] * mask_BT
        returns_BT = torch.zeros_like(rewards_BT)
    if offset:
        advantages_BT = affirmed(advantages_BT, mask_BT, offset)
    kl_BT = (logprobs_BT - reference_logprobs_BT) * mask_BT
    return Credit(advantages_BT, returns_BT, kl_BT.sum(1), rewards_BT.sum(1))
