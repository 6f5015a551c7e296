"""A packed pass through a Llama-like trunk: token ids in, hidden states of the positions that are read out.

The last layer computes queries, attention and feed-forward for the read-outs alone: log-probs need the response's
positions and a reward model the last one, and nothing after the last layer looks at the others.

Shapes: S tokens, N read-outs, I hidden, E a head's entries of all heads, C complex pairs of a head.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor

from holdfast.models.fast.architecture import Architecture, read_architecture
from holdfast.models.fast.attention import Attend, Heads, Layout
from holdfast.models.fast.blocks import AddLinear, Again, Embed, GatedUnit, Norm, NormLinear
from holdfast.models.fast.fold import Folded, FoldedLayer, FoldedWeights
from holdfast.models.fast.packing import Packed

# Tokens that go through all layers together on a CPU: enough for matrix products to be at their best, few enough for
# the caches.
CHUNK = 2048


class FastTrunk:
    """The fast path of one trunk. Holds no weights of its own."""

    def __init__(self, architecture: Architecture, checkpointing: bool = False) -> None:
        self.architecture, self.checkpointing = architecture, checkpointing
        self.weights = FoldedWeights(architecture)
        a = architecture
        self.beside = Heads(a.q_heads, a.kv_heads, a.head_dim, a.heads, a.heads, a.q_heads)
        self.apart = Heads(a.q_heads, a.kv_heads, a.head_dim, a.q_heads, 2 * a.kv_heads, 0)
        self._turns_TC = torch.empty(0)
        self._floor = torch.tensor((a.width * a.eps) ** 0.5)

    def __deepcopy__(self, memo: dict[int, Any]) -> FastTrunk:
        # Anew from the copied modules: folded weights that are still shared stay shared, others are not copied.
        return FastTrunk(copy.deepcopy(self.architecture, memo), self.checkpointing)

    @classmethod
    def of(cls, trunk: Any, checkpointing: bool = False) -> FastTrunk | None:
        """The fast path of a transformers trunk, or None where only the plain path is sure to be right.

        With `checkpointing` a pass with gradients keeps what goes into each layer, and nothing of its inside.
        """
        architecture = read_architecture(trunk)
        if architecture is None:
            return None
        fast = cls(architecture, checkpointing)
        return fast if fast._agrees_with(trunk) else None

    @torch.no_grad()
    def _agrees_with(self, trunk: Any) -> bool:
        """Both paths on a few tokens: whatever reading the modules missed shows here and not in a run."""
        device = self.architecture.norm.device
        probe = [(1 + 7 * i) % self.architecture.embedding.shape[0] for i in range(6)]
        theirs = trunk(input_ids=torch.tensor([probe], device=device), use_cache=False).last_hidden_state[0]
        ours = self.hidden(Packed.of([probe], [len(probe)], device))
        return bool(torch.allclose(ours, theirs, atol=1e-4, rtol=1e-4))

    def turns(self, length: int) -> Tensor:
        """exp(i * position * frequency) for the first positions, computed once."""
        frequencies_C = self.architecture.rope.inv_freq.float()
        if self._turns_TC.shape[0] < length or self._turns_TC.device != frequencies_C.device:
            size = max(256, 2 * length)
            angles_TC = torch.arange(size, device=frequencies_C.device).float()[:, None] * frequencies_C
            self._turns_TC = torch.polar(torch.full_like(angles_TC, self.architecture.rope_scale), angles_TC)
        return self._turns_TC

    @property
    def floor(self) -> Tensor:
        """What keeps the length of a zero vector from being zero, where the weights are."""
        a = self.architecture
        if self._floor.device != a.norm.device:
            self._floor = self._floor.to(a.norm.device)
        return self._floor

    def layout(self, packed: Packed, heads: Heads) -> Layout:
        """Where queries, keys and values stand, the same for every model of this arrangement of heads."""
        layout = packed.kept.get(heads)
        if layout is None:
            layout = Layout(packed.everything if heads is self.beside else packed.wanted, heads)
            packed.kept[heads] = layout
        return layout

    def hidden(self, packed: Packed) -> Tensor:
        """hidden_NI at the read-outs, after the last norm, as transformers' last_hidden_state has them."""
        a = self.architecture
        learns = torch.is_grad_enabled() and any(p.requires_grad for p in self.weights.parameters)
        if learns:
            layers, anchor = self.weights.for_gradients()
        else:
            layers, anchor = self.weights.current(), a.norm.new_zeros(())
        # Some rows at a time through all layers: what one step writes is still near when the next one reads it.
        chunks = packed.chunks(CHUNK) if a.norm.device.type == "cpu" else [packed]
        hidden = [self._pass(chunk, layers, anchor) for chunk in chunks]
        return hidden[0] if len(hidden) == 1 else torch.cat(hidden)

    def _pass(self, packed: Packed, layers: list[FoldedLayer], anchor: Tensor) -> Tensor:
        a = self.architecture
        turns_SC = self.turns(max(packed.lengths)).index_select(0, packed.positions_S)
        x_SI = Embed.apply(a.embedding, packed.ids_S, a.padding, anchor)  # type: ignore[no-untyped-call]
        beside = self.layout(packed, self.beside)
        again = self.checkpointing and torch.is_grad_enabled()
        for layer in layers[:-1]:
            step = partial(self._layer, layer=layer, beside=beside, turns_SC=turns_SC)
            x_SI = Again.apply(x_SI, step) if again else step(x_SI)  # type: ignore[no-untyped-call]
        x_NI = self._last(x_SI, layers[-1], packed, turns_SC)
        return Norm.apply(x_NI, a.norm, self.floor)  # type: ignore[no-any-return, no-untyped-call]

    def _layer(self, x_SI: Tensor, layer: FoldedLayer, beside: Layout, turns_SC: Tensor) -> Tensor:
        """One layer in which every token asks, into x's memory."""
        qkv_SE = NormLinear.apply(x_SI, layer.qkv, self.floor)  # type: ignore[no-untyped-call]
        answers_SE = Attend.apply(None, qkv_SE, beside, turns_SC, turns_SC)  # type: ignore[no-untyped-call]
        return self._after_attention(x_SI, answers_SE, layer)

    def _after_attention(self, x: Tensor, answers: Tensor, layer: FoldedLayer) -> Tensor:
        x = AddLinear.apply(x, answers, layer.o)  # type: ignore[no-untyped-call]
        both = NormLinear.apply(x, layer.gate_up, self.floor)  # type: ignore[no-untyped-call]
        return AddLinear.apply(x, GatedUnit.apply(both), layer.down)  # type: ignore[no-any-return, no-untyped-call]

    def _last(self, x_SI: Tensor, layer: FoldedLayer, packed: Packed, turns_SC: Tensor) -> Tensor:
        """The last layer, where only the read-outs ask."""
        a, query_N = self.architecture, packed.wanted.query_N
        q, kv = _split(layer.qkv, a.q_heads * a.head_dim)
        x_NI = x_SI.index_select(0, query_N)
        q_NE = NormLinear.apply(x_NI, q, self.floor)  # type: ignore[no-untyped-call]
        kv_SE = NormLinear.apply(x_SI, kv, self.floor)  # type: ignore[no-untyped-call]
        turns_NC = turns_SC.index_select(0, query_N)
        layout = self.layout(packed, self.apart)
        answers_NE = Attend.apply(q_NE, kv_SE, layout, turns_NC, turns_SC)  # type: ignore[no-untyped-call]
        return self._after_attention(x_NI, answers_NE, layer)


def _split(qkv: Folded, queries: int) -> tuple[Folded, Folded]:
    return qkv.rows(0, queries), qkv.rows(queries, int(qkv.products.weight_OI.shape[0]))
