"""The distance of the policy from the reference: three per-token estimators.

Shapes: B batch, T token.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

KLKind = Literal["k1", "k2", "k3"]

# k3 grows like exp(-r); past this it would overflow where the reference finds a token hugely more likely.
MAX_LOG_RATIO = 20.0


def kl_estimate(logprobs_BT: Tensor, ref_logprobs_BT: Tensor, kind: KLKind) -> Tensor:
    """An estimate of KL(policy || reference) at each token that the policy sampled.

    With r = log pi - log ref (Schulman 2020, "Approximating KL divergence", joschu.net/blog/kl-approx.html):

        k1 = r                   unbiased, high variance, may be negative
        k2 = r^2 / 2             biased, low variance, never negative
        k3 = exp(-r) - 1 + r     unbiased, low variance, never negative

    All are differentiable. For k3, r is bounded below at -20, where it is 4.9e8, so that no token makes it
    infinite. Both log-probs must be taken at the same temperature, or k1 can be negative on average.
    """
    r_BT = logprobs_BT - ref_logprobs_BT
    if kind == "k1":
        return r_BT
    if kind == "k2":
        return r_BT.square() / 2
    if kind == "k3":
        bounded_BT = r_BT.clamp(min=-MAX_LOG_RATIO)
        return torch.expm1(-bounded_BT) + bounded_BT
    raise ValueError(f"The KL estimator is one of k1, k2 and k3, not {kind!r}.")
