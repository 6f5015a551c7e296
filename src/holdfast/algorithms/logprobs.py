"""From logits to the log-probs of given tokens, and to the entropy of the distribution.

Shapes: B batch, T token, V vocabulary. The arithmetic is in float32 whatever the model's type, because the
differences of log-probs that PPO and KL live on are lost in half precision.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy


def token_logprobs(logits_BTV: Tensor, tokens_BT: Tensor, temperature: float) -> Tensor:
    """log softmax(logits / temperature) at each token.

    Use the sampling temperature, for policy and reference alike: at different temperatures the two are not
    the distributions that were sampled and compared, and their KL estimate can turn negative.
    """
    scaled_BTV = _scaled(logits_BTV, temperature)
    # Fused log-softmax and gather: half the time and memory of the two apart.
    losses = cross_entropy(scaled_BTV.flatten(0, -2), tokens_BT.flatten(), reduction="none")
    return -losses.view(tokens_BT.shape)


def entropy_from_logits(logits_BTV: Tensor, temperature: float = 1.0) -> Tensor:
    """H = -sum_v pi(v) log pi(v) in nats at each position; tokens of probability 0 add nothing."""
    logprobs_BTV = torch.log_softmax(_scaled(logits_BTV, temperature), dim=-1)
    possible_BTV = logprobs_BTV.masked_fill(logprobs_BTV == -torch.inf, 0.0)
    return -(logprobs_BTV.exp() * possible_BTV).sum(dim=-1)


def _scaled(logits_BTV: Tensor, temperature: float) -> Tensor:
    if not temperature > 0:
        raise ValueError(f"The temperature must be above 0, not {temperature}.")
    return logits_BTV.float() / temperature if temperature != 1.0 else logits_BTV.float()
