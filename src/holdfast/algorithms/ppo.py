"""Proximal policy optimisation for responses of tokens: rewards, policy loss, value loss.

Shapes: B batch, T token. Masks are 1 on response tokens.

A minibatch is worked through as several micro-batches of like length whose gradients add up. So a loss is the
SUM over the tokens of its micro-batch divided by `token_count`, the number of response tokens in the whole
minibatch: the losses of all micro-batches then add up to the mean over the minibatch's tokens. `loss_divisor` and
`token_weights` give the other means that the policy's loss may be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from holdfast.algorithms.masking import masked_sum

LossMean = Literal["token", "answer", "length"]

# exp(20) = 4.9e8: far past any ratio that means something, and far from overflow.
MAX_LOG_RATIO = 20.0


@dataclass(frozen=True)
class PolicyStats:
    """Sums over response tokens, detached, so that the stats of micro-batches can be added."""

    tokens: Tensor
    clipped: Tensor
    kl: Tensor
    ratio: Tensor

    def __add__(self, other: PolicyStats) -> PolicyStats:
        return PolicyStats(
            tokens=self.tokens + other.tokens,
            clipped=self.clipped + other.clipped,
            kl=self.kl + other.kl,
            ratio=self.ratio + other.ratio,
        )

    @property
    def clip_fraction(self) -> Tensor:
        """The share of tokens at which the clip was what bounded the objective."""
        return self.clipped / self.tokens

    @property
    def mean_kl(self) -> Tensor:
        """KL(old policy || new policy) per token, by the k3 estimator on the old policy's samples."""
        return self.kl / self.tokens

    @property
    def mean_ratio(self) -> Tensor:
        """The mean of new over old probability, near 1 in a healthy update."""
        return self.ratio / self.tokens


def kl_penalised_rewards(scores_B: Tensor, kl_BT: Tensor, mask_BT: Tensor, beta: float) -> Tensor:
    """Per-token rewards: -beta KL at every response token, and the score on the last one; 0 outside the mask.

    r_t = -beta kl_t + [t = last] score      (Ziegler et al. 2019, arXiv:1909.08593, equation 2)

    A response without a token in the mask, in which nothing was free, has its score in the last column.
    """
    mask_BT = mask_BT.bool()
    rewards_BT = torch.where(mask_BT, -beta * kl_BT, 0.0)
    # argmax finds the first maximum, so on the flipped mask it finds the last response token.
    last_B = mask_BT.shape[1] - 1 - mask_BT.flip(1).int().argmax(dim=1)
    return rewards_BT.scatter_add(1, last_B.unsqueeze(1), scores_B.to(rewards_BT.dtype).unsqueeze(1))


def loss_divisor(mean: LossMean, lengths_B: Sequence[int], longest: int) -> int:
    """What the sum over a minibatch's tokens is divided by, from its answers' lengths; `longest` is the most allowed.

    An answer's length is that of what was free in it.

        token    sum over answers i and tokens t of l_it / sum_i |o_i|           the mean over tokens
        answer   1/G sum_i 1/|o_i| sum_t l_it                                    the mean of the answers' means
        length   1/G sum_i 1/longest sum_t l_it                                  the sum over a constant length

    `token` is DAPO's (Yu et al. 2025, arXiv:2503.14476, section 3.3): each token counts the same, so a long answer has
    the larger say. `answer` is GRPO's (Shao et al. 2024, arXiv:2402.03300, equation 3): each answer counts the same, so
    a token of a long one counts less, which makes long wrong answers cheap. `length` is Dr. GRPO's (Liu et al. 2025,
    arXiv:2503.20783, section 3.2), in which a token counts the same whatever else is in the batch.
    """
    if mean == "token":
        return max(1, sum(lengths_B))
    if mean == "answer":
        return len(lengths_B)
    if longest < 1:
        raise ValueError(f"The constant length that a loss is divided by is at least 1, not {longest}.")
    return len(lengths_B) * longest


def token_weights(mean: LossMean, lengths_B: Sequence[int]) -> Tensor | None:
    """weights_N of answers' tokens laid end to end, 1 / |o_i| for `answer`; None where all of them weigh 1."""
    if mean != "answer":
        return None
    lengths = torch.tensor(lengths_B)
    return (1.0 / lengths).repeat_interleave(lengths)


def ppo_policy_loss(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages_BT: Tensor,
    mask_BT: Tensor,
    clip: float,
    token_count: float | Tensor,
    clip_high: float = 0.0,
    weights_BT: Tensor | None = None,
) -> tuple[Tensor, PolicyStats]:
    """The clipped surrogate loss, summed over tokens and divided by `token_count`, with its stats.

        L = -(1 / token_count) sum_t w_t min(rho_t A_t, clip(rho_t, 1 - c, 1 + c_high) A_t),  rho_t = pi / pi_old

    (Schulman et al. 2017, arXiv:1707.06347, equation 7). `clip_high` is c_high, and 0 stands for c: above c it lets
    tokens that were unlikely grow further, against the loss of entropy (DAPO's clip-higher, Yu et al. 2025,
    arXiv:2503.14476, section 3.1). `weights_BT` is w, 1 if not given. log rho is bounded to [-20, 20] before the
    exponential: a token that far out gives a large finite loss and no gradient, never an infinity.
    """
    mask_BT = mask_BT.bool()
    log_ratio_BT = torch.where(mask_BT, logprobs_BT - old_logprobs_BT, 0.0)
    log_ratio_BT = log_ratio_BT.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    advantages_BT = torch.where(mask_BT, advantages_BT, 0.0)
    ratio_BT = log_ratio_BT.exp()
    free_BT = ratio_BT * advantages_BT
    bounded_BT = ratio_BT.clamp(1.0 - clip, 1.0 + (clip_high or clip)) * advantages_BT
    least_BT = torch.minimum(free_BT, bounded_BT)
    loss = -(least_BT if weights_BT is None else least_BT * weights_BT).sum() / token_count
    with torch.no_grad():
        stats = PolicyStats(
            tokens=mask_BT.sum().to(ratio_BT.dtype),
            clipped=(bounded_BT < free_BT).sum().to(ratio_BT.dtype),
            # k3 with r = log old - log new: exp(-r) - 1 + r = rho - 1 - log rho, and 0 outside the mask.
            kl=(torch.expm1(log_ratio_BT) - log_ratio_BT).sum(),
            ratio=masked_sum(ratio_BT, mask_BT),
        )
    return loss, stats


def ppo_value_loss(
    values_BT: Tensor,
    old_values_BT: Tensor,
    returns_BT: Tensor,
    mask_BT: Tensor,
    clip: float,
    token_count: float | Tensor,
) -> Tensor:
    """The clipped squared error of the critic, summed over tokens and divided by `token_count`.

        L = (1 / token_count) sum_t 0.5 max((V_t - R_t)^2, (clip(V_t, V_old - c, V_old + c) - R_t)^2)

    The larger error counts, so moving V further than c from its old value brings no gain (Huang et al. 2024,
    arXiv:2403.17031).
    """
    mask_BT = mask_BT.bool()
    # Masked before squaring: a NaN on padding would pass through the square's gradient even with weight 0.
    move_BT = torch.where(mask_BT, values_BT - old_values_BT, 0.0)
    old_error_BT = torch.where(mask_BT, old_values_BT - returns_BT, 0.0)
    free_BT = (old_error_BT + move_BT).square()
    bounded_BT = (old_error_BT + move_BT.clamp(-clip, clip)).square()
    return 0.5 * torch.maximum(free_BT, bounded_BT).sum() / token_count
