"""Best-of-n from order statistics: what the best of n answers is worth, and how far it is from one answer.

Shapes: N answers to one prompt, all drawn from the same policy.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def best_of_n_kl(n: int) -> float:
    """KL(best of n || one answer) = log n - (n - 1) / n, in nats, where no two answers score the same.

    (Stiennon et al. 2020, arXiv:2009.01325, appendix G.) Where answers repeat it is an upper bound.
    """
    if n < 1:
        raise ValueError(f"The best of {n} answers is not defined; n is at least 1.")
    return math.log(n) - (n - 1) / n


def best_of_n_weights(count: int, n: int) -> Tensor:
    """weights_N: how likely the i-th lowest of `count` answers is the best of n drawn without replacement.

    w_i = C(i - 1, n - 1) / C(count, n)     (Nakano et al. 2021, arXiv:2112.09332, appendix I)
    """
    if not 1 <= n <= count:
        raise ValueError(f"The best of {n} cannot be told from {count} answers; n is between 1 and that.")
    # Logarithms, since the binomials overflow; the first n - 1 answers can never be the best.
    i_M = torch.arange(n, count + 1, dtype=torch.float64)
    log_M = _log_choose(i_M - 1, n - 1) - _log_choose(torch.tensor(float(count), dtype=torch.float64), n)
    return torch.cat([torch.zeros(n - 1, dtype=torch.float64), log_M.exp()])


def best_of_n_estimate(proxy_N: Tensor, value_N: Tensor, n: int) -> float:
    """The expected value of the answer that the proxy likes best of n, without bias, from N scored answers.

    Answers with equal proxy are as likely to be taken as each other, so they share the mean of their values.
    """
    order_N = proxy_N.double().argsort(stable=True)
    proxy_N, value_N = proxy_N.double()[order_N], value_N.double()[order_N]
    _, group_N = torch.unique_consecutive(proxy_N, return_inverse=True)
    sums_G = torch.zeros(int(group_N[-1]) + 1, dtype=torch.float64).index_add_(0, group_N, value_N)
    sizes_G = torch.zeros_like(sums_G).index_add_(0, group_N, torch.ones_like(value_N))
    return float((best_of_n_weights(len(proxy_N), n) * (sums_G / sizes_G)[group_N]).sum())


def _log_choose(of: Tensor, n: int) -> Tensor:
    taken = torch.tensor(float(n), dtype=torch.float64)
    return torch.lgamma(of + 1) - torch.lgamma(taken + 1) - torch.lgamma(of - taken + 1)
