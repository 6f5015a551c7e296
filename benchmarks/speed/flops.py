"""How many floating-point operations a model's work needs, counted from shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

FORWARD, FORWARD_AND_BACKWARD = 1, 3


def model_flops(
    config: Any, lengths: Sequence[int], response_lengths: Sequence[int], passes: int = FORWARD_AND_BACKWARD
) -> float:
    """Matrix-product operations of a Llama over sequences of `lengths` tokens, of which `response_lengths` get logits.

        per token and layer   2 (D A + 2 D G + A D + 3 D F)    queries, keys and values, output, gate-up-down
        per sequence, layer   2 * 2 * T^2 / 2 * A              scores and weighted values, the causal half of T x T
        per response token    2 D V                            the head; 0 responses make it a critic or reward trunk

    D hidden, A heads x head size, G key-value heads x head size, F feed-forward, V vocabulary. The backward pass costs
    twice the forward one, so `passes` is 3 for training and 1 for a pass without gradients. Only real tokens count:
    padding, recomputation and anything that is not a matrix product are overhead, whoever pays it.
    """
    hidden, heads = int(config.hidden_size), int(config.num_attention_heads)
    head = int(getattr(config, "head_dim", None) or hidden // heads)
    across = heads * head
    grouped = int(config.num_key_value_heads) * head
    per_token = 2 * (2 * hidden * across + 2 * hidden * grouped + 3 * hidden * int(config.intermediate_size))
    attention = sum(2 * 2 * length * length / 2 * across for length in lengths)
    trunk = int(config.num_hidden_layers) * (per_token * sum(lengths) + attention)
    return passes * (trunk + 2 * hidden * int(config.vocab_size) * sum(response_lengths))


def least_flops(config: Any, lengths: Sequence[int], response_lengths: Sequence[int], head: bool = True) -> float:
    """The least that log-probs of the responses and their gradients need: the above, less what nobody reads.

    The last token of a row predicts nothing, and the last layer needs only keys and values of positions that are not
    read out. Without `head` it is a critic.
    """
    hidden, heads = int(config.hidden_size), int(config.num_attention_heads)
    across = heads * int(getattr(config, "head_dim", None) or hidden // heads)
    grouped = across * int(config.num_key_value_heads) // heads
    keys_values = 2 * 2 * hidden * grouped
    rest = 2 * (2 * hidden * across + 3 * hidden * int(config.intermediate_size))
    layers = int(config.num_hidden_layers)
    total = 0.0
    for length, responses in zip(lengths, response_lengths, strict=True):
        tokens, prompt = length - 1, length - 1 - responses
        # A query sees the keys up to its own: the sum over all, and over those of the response.
        pairs = tokens * tokens / 2
        total += layers * keys_values * tokens + (layers - 1) * (rest * tokens + 2 * 2 * across * pairs)
        total += rest * responses + 2 * 2 * across * (pairs - prompt * prompt / 2)
        total += 2 * hidden * int(config.vocab_size) * responses if head else 0
    return FORWARD_AND_BACKWARD * total
