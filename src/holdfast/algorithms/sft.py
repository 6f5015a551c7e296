"""Supervised fine-tuning: imitate the demonstrations.

Shapes: B batch, T token.
"""

from __future__ import annotations

from torch import Tensor

from holdfast.algorithms.masking import masked_sum


def sft_loss(logprobs_BT: Tensor, mask_BT: Tensor, token_count: float | Tensor) -> Tensor:
    """Cross-entropy of the response tokens, L = -(1 / token_count) sum_t log pi(y_t | x, y_<t).

    `token_count` is the number of response tokens in all micro-batches whose gradients are added together.
    """
    return -masked_sum(logprobs_BT, mask_BT) / token_count
