"""Learning from pairs without a reward model: DPO and its relatives as pure functions of summed log-probs.

Shapes: P pair. Log-probs are sums over an answer's tokens; `tokens` counts them.

    margin h_P  = how much more the policy prefers the chosen answer than it has to begin with
    loss_P      = t f(h) + (1 - t) f(-h), with t the probability that the label is right

What differs between the kinds is the margin and f:

    sigmoid   h = beta [(log pi - log ref)(chosen) - (log pi - log ref)(rejected)]      f(h) = -log sigma(h)
    ipo       h = the same with means over tokens and without beta                       f(h) = (h - 1 / (2 beta))^2
    simpo     h = beta [mean log pi(chosen) - mean log pi(rejected)], no reference       f(h) = -log sigma(h - gamma)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

DPOKind = Literal["sigmoid", "ipo", "simpo"]


@dataclass(frozen=True)
class PairLogProbs:
    """The log-probs of a batch of pairs under the policy and the reference, and the answers' lengths."""

    chosen_P: Tensor
    rejected_P: Tensor
    reference_chosen_P: Tensor
    reference_rejected_P: Tensor
    chosen_tokens_P: Tensor
    rejected_tokens_P: Tensor

    @property
    def chosen_gain_P(self) -> Tensor:
        """log pi - log ref of the chosen answer."""
        return self.chosen_P - self.reference_chosen_P

    @property
    def rejected_gain_P(self) -> Tensor:
        """log pi - log ref of the rejected answer."""
        return self.rejected_P - self.reference_rejected_P


def dpo_margins(kind: DPOKind, pairs: PairLogProbs, beta: float) -> Tensor:
    """margins_P, as the head of this file defines them.

    DPO: Rafailov et al. 2023 (arXiv:2305.18290), equation 7. IPO: Azar et al. 2023 (arXiv:2310.12036), equation 17;
    the paper sums over tokens, and the mean is what its authors advise for language models and what TRL has, since a
    sum would ask long answers for less. SimPO: Meng et al. 2024 (arXiv:2405.14734), equation 6.
    """
    if kind == "sigmoid":
        return beta * (pairs.chosen_gain_P - pairs.rejected_gain_P)
    if kind == "ipo":
        return pairs.chosen_gain_P / pairs.chosen_tokens_P - pairs.rejected_gain_P / pairs.rejected_tokens_P
    if kind == "simpo":
        return beta * (pairs.chosen_P / pairs.chosen_tokens_P - pairs.rejected_P / pairs.rejected_tokens_P)
    raise ValueError(f"The loss is one of sigmoid, ipo and simpo, not {kind!r}.")


def dpo_losses(
    kind: DPOKind,
    pairs: PairLogProbs,
    beta: float,
    label_smoothing: float = 0.0,
    gamma: float = 0.0,
    nll_weight: float = 0.0,
    share_P: Tensor | None = None,
) -> Tensor:
    """losses_P, one for each pair.

    `label_smoothing` e assumes that a share e of the labels is wrong (conservative DPO, Mitchell 2023); `share_P` is
    the share of people who preferred `chosen` (1 if not given), so that t = share (1 - e) + (1 - share) e. `nll_weight`
    adds that many times the cross-entropy of the chosen answer, per token (Pang et al. 2024, arXiv:2404.19733), which
    keeps its probability up. `gamma` is SimPO's margin.
    """
    if not beta > 0:
        raise ValueError(f"beta has to be above 0, not {beta}.")
    if not 0.0 <= label_smoothing < 0.5:
        raise ValueError(f"Label smoothing lies between 0 and 0.5, not at {label_smoothing}.")
    margins_P = dpo_margins(kind, pairs, beta)
    share = torch.ones_like(margins_P) if share_P is None else share_P
    target_P = share * (1.0 - label_smoothing) + (1.0 - share) * label_smoothing
    losses_P = target_P * _one_sided(kind, margins_P, beta, gamma)
    if bool((target_P < 1.0).any()):
        losses_P = losses_P + (1.0 - target_P) * _one_sided(kind, -margins_P, beta, gamma)
    if nll_weight:
        losses_P = losses_P - nll_weight * pairs.chosen_P / pairs.chosen_tokens_P
    return losses_P


def _one_sided(kind: DPOKind, margins_P: Tensor, beta: float, gamma: float) -> Tensor:
    if kind == "ipo":
        return (margins_P - 1.0 / (2.0 * beta)).square()
    return -logsigmoid(margins_P - (gamma if kind == "simpo" else 0.0))
