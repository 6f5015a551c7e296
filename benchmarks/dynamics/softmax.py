"""What a gradient on one token does to all the others: the exact step of a softmax, and a simulation of it.

    z -> z + eta s (e_y - pi)       one step of gradient ascent (s = 1) or descent (s = -1) on log pi(y)

A negative gradient on a token that is unlikely anyhow takes almost nothing from it, and hands what it takes out in
proportion to exp(eta pi): nearly all of it to the argmax. So every other token falls, however innocent: the squeezing
effect (Ren and Sutherland 2024, arXiv:2407.10490, section 3.3 and appendix E).

Shapes: V vocabulary, C contexts, D features of a context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Push:
    """A gradient on one token in one context: `sign` 1 makes it likelier, -1 less likely."""

    token: int
    sign: float
    context: int = 0


def closed_form_step(probs_V: Tensor, pushes: Sequence[tuple[int, float]], rate: float) -> Tensor:
    """The probabilities after one step with the given (token, sign) pushes at once, without any gradient taken.

    pi'(v) = pi(v) exp(dz(v)) / sum_u pi(u) exp(dz(u)),   dz(v) = rate sum over pushes of sign ([v = token] - pi(v))
    """
    change_V = torch.zeros_like(probs_V)
    for token, sign in pushes:
        change_V = change_V - rate * sign * probs_V
        change_V[token] += rate * sign
    raised_V = probs_V * change_V.exp()
    return raised_V / raised_V.sum()


def simulate(
    weights_VD: Tensor, contexts_CD: Tensor, pushes: Sequence[Push], rate: float, steps: int = 1
) -> list[Tensor]:
    """probs_CV before and after each step of gradient descent on a linear softmax model, z = W x.

    The loss is -sum over pushes of sign log pi(token | context), and its gradient is autograd's. Contexts that share
    features move each other; with one context of one feature the model is a softmax of its weights and nothing else.
    """
    weights_VD = weights_VD.detach().clone().requires_grad_(True)
    history: list[Tensor] = []
    for step in range(steps + 1):
        logprobs_CV = torch.log_softmax(contexts_CD @ weights_VD.T, dim=-1)
        history.append(logprobs_CV.detach().exp())
        if step == steps:
            break
        loss = -torch.stack([push.sign * logprobs_CV[push.context, push.token] for push in pushes]).sum()
        (gradient_VD,) = torch.autograd.grad(loss, weights_VD)
        with torch.no_grad():
            weights_VD -= rate * gradient_VD
    return history
