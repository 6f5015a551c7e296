"""Causal LMs of a few thousand weights, of several architectures, and micro-batches to feed them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from holdfast.models.policy import Policy
from holdfast.models.tiny import TinyShape, tiny_llama

VOCABULARY = 23
PAD, EOS = 0, 1

_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "pad_token_id": PAD,
    "bos_token_id": None,
    "eos_token_id": EOS,
}
_LLAMA_LIKE: dict[str, Any] = {
    **_COMMON, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 24, "max_position_embeddings": 64, "initializer_range": 0.3,
}  # fmt: skip


def llama(**changes: Any) -> Any:
    return LlamaForCausalLM(LlamaConfig(**{**_LLAMA_LIKE, **changes}))


def qwen2(**changes: Any) -> Any:
    return Qwen2ForCausalLM(Qwen2Config(**{**_LLAMA_LIKE, **changes}))


def gemma2(**changes: Any) -> Any:
    """Soft-capped logits, and a sliding window on every other layer."""
    own = {"head_dim": 4, "sliding_window": 6, "final_logit_softcapping": 2.0}
    return Gemma2ForCausalLM(Gemma2Config(**{**_LLAMA_LIKE, **own, **changes}))


def gpt2(**changes: Any) -> Any:
    own = {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 64, "initializer_range": 0.3}
    return GPT2LMHeadModel(GPT2Config(**{**_COMMON, **own, **changes}))


ARCHITECTURES: dict[str, Callable[..., Any]] = {
    "llama": llama,
    "gpt2": gpt2,
    "qwen2": qwen2,
    "gemma2": gemma2,
}


def build(name: str, seed: int = 0, **changes: Any) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ARCHITECTURES[name](**changes).eval()


def tiny_policy(seed: int = 0, vocabulary: int = VOCABULARY, value_head: bool = False) -> Policy:
    """The package's own small Llama, smaller still."""
    shape = TinyShape(hidden=16, layers=1, heads=2, feed_forward=24, context=64)
    return Policy(tiny_llama(vocabulary, shape, seed, PAD, EOS), value_head=value_head)


def sequences(count: int, shortest: int, longest: int, seed: int = 0) -> list[list[int]]:
    """Random token sequences without padding or EOS."""
    rng = torch.Generator().manual_seed(seed)
    lengths = torch.randint(shortest, longest + 1, (count,), generator=rng).tolist()
    return [torch.randint(2, VOCABULARY, (n,), generator=rng).tolist() for n in lengths]


@torch.no_grad()
def plain_logprobs(lm: Any, prompt: list[int], response: list[int], temperature: float = 1.0) -> torch.Tensor:
    """The textbook route: full logits of one row alone, softmax, log, pick."""
    logits_TV = lm(input_ids=torch.tensor([[*prompt, *response]])).logits[0].double() / temperature
    before = range(len(prompt) - 1, len(prompt) + len(response) - 1)
    return torch.stack([logits_TV[t].softmax(-1).log()[token] for t, token in zip(before, response, strict=True)])
