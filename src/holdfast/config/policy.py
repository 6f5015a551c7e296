"""The settings of the model that is trained: what it is, how it is kept in memory, and what of it learns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.config.setting import setting


@dataclass(frozen=True)
class PolicyConfig:
    """The model that is trained."""

    path: str = setting(
        "", "a Hugging Face causal-LM directory, a run, or smollm2; empty takes the world's own or builds a small Llama"
    )
    hidden: int = setting(96, "built-in Llama: hidden size", low=8)
    layers: int = setting(2, "built-in Llama: layers", low=1)
    heads: int = setting(4, "built-in Llama: attention heads", low=1)
    feed_forward: int = setting(256, "built-in Llama: feed-forward size", low=8)
    context: int = setting(160, "built-in Llama: longest sequence", low=16)
    critic: Literal["head", "model"] = setting("head", "value head on the policy's trunk, or a model of its own")
    micro_batch_tokens: int = setting(
        8192, "tokens per forward and backward pass; gradients of a minibatch add up over as many passes", low=64
    )
    fast: bool = setting(True, "run Llama-like models by the packed path; false takes transformers' own for all")
    dtype: Literal["float32", "bfloat16"] = setting(
        "float32", "what the weights are kept in; bfloat16 halves them, and needs lora_rank"
    )
    gradient_checkpointing: bool = setting(
        False, "compute each layer again in the backward pass instead of keeping its insides: less memory, more time"
    )
    lora_rank: int = setting(
        0, "rank of LoRA adapters, on one frozen copy of the weights for policy, reference and members; 0 trains all",
        low=0,
    )  # fmt: skip
    lora_alpha: float = setting(16.0, "LoRA: what the adapters add is multiplied by lora_alpha / lora_rank", above=0.0)
    lora_targets: tuple[str, ...] = setting(
        (), "LoRA: layers with adapters, by the end of their names; empty takes every linear layer"
    )
