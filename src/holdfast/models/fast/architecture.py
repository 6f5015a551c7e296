"""Which transformers models the fast path can run, read off the modules themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

# Models whose decoder layer is: x += o(attention(rope(qkv(norm x)))); x += down(silu(gate(norm x)) * up(norm x)).
FAMILIES = {
    "LlamaModel": "LlamaRMSNorm",
    "MistralModel": "MistralRMSNorm",
    "Qwen2Model": "Qwen2RMSNorm",
}
PLAIN_ROPE = ("default", "linear", "llama3", "yarn")


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter beside a linear layer: y += scale * B A x. Shapes: R rank, I inputs, O outputs."""

    a_RI: Tensor
    b_OR: Tensor
    scale: float


@dataclass(frozen=True)
class Linear:
    """A linear layer's weights, and the adapter beside it where there is one."""

    weight: Tensor
    bias: Tensor | None
    adapter: Adapter | None = None


@dataclass(frozen=True)
class Layer:
    """The parts of one decoder layer."""

    attention_norm: Tensor
    q: Linear
    k: Linear
    v: Linear
    o: Linear
    mlp_norm: Tensor
    gate: Linear
    up: Linear
    down: Linear


@dataclass(frozen=True)
class Architecture:
    """A Llama-like trunk: its parts and its sizes. `q_heads` is a multiple of `kv_heads`.

    The embedding of the `padding` token never learns: torch leaves its gradient out, so this path does too.
    """

    embedding: Tensor
    padding: int | None
    layers: tuple[Layer, ...]
    norm: Tensor
    eps: float
    q_heads: int
    kv_heads: int
    head_dim: int
    rope: Any
    rope_scale: float

    @property
    def width(self) -> int:
        return int(self.norm.shape[0])

    @property
    def heads(self) -> int:
        """Heads of queries, keys and values laid side by side."""
        return self.q_heads + 2 * self.kv_heads


def read_architecture(trunk: Any) -> Architecture | None:
    """The parts of a trunk, or None where anything about it is not plainly Llama."""
    norm_kind = FAMILIES.get(type(trunk).__name__)
    config = getattr(trunk, "config", None)
    if norm_kind is None or config is None or config.hidden_act != "silu":
        return None
    if type(trunk.embed_tokens) is not nn.Embedding or _has_hooks(trunk) or _slides(config):
        return None
    layers = []
    for block in trunk.layers:
        attention, mlp = block.self_attn, block.mlp
        parts = [attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj]
        parts += [mlp.gate_proj, mlp.up_proj, mlp.down_proj]
        linears = [linear for part in parts if (linear := read_linear(part)) is not None]
        norms = [block.input_layernorm, block.post_attention_layernorm]
        # A quantised layer or a norm of another kind is not what the arithmetic below computes.
        if len(linears) < len(parts) or any(type(n).__name__ != norm_kind for n in norms):
            return None
        q, k, v, o, gate, up, down = linears
        if any(part.bias is not None for part in (o, gate, up, down)):
            return None
        layers.append(Layer(norms[0].weight, q, k, v, o, norms[1].weight, gate, up, down))
    head_dim = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    rope = trunk.rotary_emb
    if head_dim % 2 or getattr(rope, "rope_type", "default") not in PLAIN_ROPE or not _one_dtype(trunk):
        return None
    return Architecture(
        embedding=trunk.embed_tokens.weight,
        padding=trunk.embed_tokens.padding_idx,
        layers=tuple(layers),
        norm=trunk.norm.weight,
        eps=float(config.rms_norm_eps),
        q_heads=int(config.num_attention_heads),
        kv_heads=int(config.num_key_value_heads),
        head_dim=head_dim,
        rope=rope,
        rope_scale=float(getattr(rope, "attention_scaling", 1.0)),
    )


def read_linear(part: Any) -> Linear | None:
    """A linear layer, or one with one plain LoRA adapter of peft's; None for anything else."""
    if type(part) is nn.Linear:
        return Linear(part.weight, part.bias)
    if not (type(part).__module__.startswith("peft.tuners.lora") and type(part).__name__ == "Linear"):
        return None
    names = list(part.active_adapters)
    if len(names) != 1 or part.merged or part.disable_adapters or type(part.base_layer) is not nn.Linear:
        return None
    name = names[0]
    up, dropout = part.lora_B[name], part.lora_dropout[name]
    if getattr(part, "lora_variant", {}) or up.bias is not None or getattr(dropout, "p", 0.0):
        return None
    adapter = Adapter(part.lora_A[name].weight, up.weight, float(part.scaling[name]))
    return Linear(part.base_layer.weight, part.base_layer.bias, adapter)


def _has_hooks(trunk: Any) -> bool:
    return any(m._forward_hooks or m._forward_pre_hooks for m in trunk.modules())


def _slides(config: Any) -> bool:
    """Whether attention looks back less far than the context."""
    window = getattr(config, "sliding_window", None)
    used = getattr(config, "use_sliding_window", True)
    return bool(window and used and window < config.max_position_embeddings)


def _one_dtype(trunk: Any) -> bool:
    return all(p.dtype == torch.float32 for p in trunk.parameters())
