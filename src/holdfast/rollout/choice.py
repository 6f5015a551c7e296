"""From logits to a token: what temperature, top-k and top-p leave, the draw, and the log-prob of what was drawn.

Shapes: A rows, V vocabulary, X blocks of it, W tokens of a block.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# Tokens of the vocabulary that are first drawn together.
BLOCK = 64
JUST_BELOW_ONE = 1 - 2**-52


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. top_p 1 and top_k 0 leave the distribution whole."""

    max_new_tokens: int = 64
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_batch: int = 256

    @property
    def truncates(self) -> bool:
        """Whether tokens are drawn from a part of the distribution."""
        return self.temperature > 0.0 and (self.top_p < 1.0 or self.top_k > 0)


def truncate_distribution(logits_AV: Tensor, top_p: float, top_k: int) -> Tensor:
    """Keep the k likeliest tokens, then the smallest set with at least top_p of the mass; the rest become -inf."""
    if top_k > 0 and top_k < logits_AV.shape[-1]:
        kth_A1 = logits_AV.topk(top_k, dim=-1).values[:, -1:]
        logits_AV = logits_AV.masked_fill(logits_AV < kth_A1, float("-inf"))
    if top_p < 1.0:
        sorted_AV, order_AV = logits_AV.sort(dim=-1, descending=True)
        probs_AV = sorted_AV.softmax(-1)
        # A token goes when the mass before it already reaches top_p, so the likeliest always stays.
        gone_AV = probs_AV.cumsum(-1) - probs_AV >= top_p
        logits_AV = logits_AV.masked_fill(gone_AV.scatter(-1, order_AV, gone_AV), float("-inf"))
    return logits_AV


def draw(powers_AV: Tensor, uniform_A: Tensor) -> Tensor:
    """Inverse-CDF sampling from weights that need not add up to 1: first a block of the vocabulary, then a token of it.

    Sums of blocks are much cheaper than a running sum over the vocabulary, and give the same token. The first place
    whose running sum exceeds the wanted number is never one that adds nothing; the number is held just below the
    total, so that rounding cannot step past the end.
    """
    vocabulary = powers_AV.shape[-1]
    blocks = -(-vocabulary // BLOCK)
    if blocks * BLOCK != vocabulary:
        powers_AV = torch.nn.functional.pad(powers_AV, (0, blocks * BLOCK - vocabulary))
    powers_AXW = powers_AV.view(-1, blocks, BLOCK)
    edges_AX = torch.zeros(len(powers_AXW), blocks + 1, dtype=torch.float64, device=powers_AV.device)
    torch.cumsum(powers_AXW.sum(-1, dtype=torch.float64), -1, out=edges_AX[:, 1:])
    total_A1 = edges_AX[:, -1:]
    wanted_A1 = torch.minimum(uniform_A[:, None] * total_A1, total_A1 * JUST_BELOW_ONE)
    block_A1 = torch.searchsorted(edges_AX, wanted_A1, right=True).sub_(1)
    inside_A1 = wanted_A1.sub_(edges_AX.gather(-1, block_A1))
    powers_AW = powers_AXW.gather(1, block_A1[..., None].expand(-1, -1, BLOCK)).squeeze(1)
    cdf_AW = powers_AW.cumsum(-1, dtype=torch.float64)
    inside_A1 = torch.minimum(inside_A1, cdf_AW[:, -1:] * JUST_BELOW_ONE)
    return torch.searchsorted(cdf_AW, inside_A1, right=True).add_(block_A1, alpha=BLOCK).squeeze(1)


def choose(logits_AV: Tensor, uniform_A: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor, Tensor | None]:
    """The next token of every row, its log-prob, and kept_AV: what it was drawn from, where that is not everything.

    The log-prob is over what was kept; what has a logit of -inf is impossible in any case.
    """
    logits_AV = logits_AV.float()
    if sampling.temperature not in (0.0, 1.0):
        logits_AV = logits_AV / sampling.temperature
    top_A1 = logits_AV.amax(-1, keepdim=True)
    kept_AV = None
    if sampling.truncates:
        left_AV = truncate_distribution(logits_AV, sampling.top_p, sampling.top_k)
        kept_AV, powers_AV = left_AV > float("-inf"), (left_AV - top_A1).exp_()
    else:
        powers_AV = (logits_AV - top_A1).exp_()
    total_A = powers_AV.sum(-1)
    picked_A = logits_AV.argmax(-1) if sampling.temperature == 0.0 else draw(powers_AV, uniform_A)
    picked_logit_A = logits_AV.gather(-1, picked_A[:, None]).squeeze(-1)
    return picked_A, picked_logit_A - top_A1.squeeze(-1) - total_A.log(), kept_AV
