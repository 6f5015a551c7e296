"""Decoding with a preallocated cache: one token for every row still going, rows that ended moved out of the way.

Keys are kept as [L, B, K, D, T] and values as [L, B, K, T, D], so that a query's scores and its answer are both a row
times a matrix in memory order. Rows going on are always the first A of the cache, so a step works on views.

Shapes: L layers, B rows, A rows still going, K key-value heads, D of a head, T columns, I hidden, E entries of all
heads, S prompt tokens end to end.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from holdfast.models.fast.attention import attention_rows, turn
from holdfast.models.fast.blocks import length
from holdfast.models.fast.folding import FoldedLayer
from holdfast.models.fast.packing import Packed
from holdfast.models.fast.trunk import FastTrunk

# Columns a cache starts with beyond the prompts; it doubles that when they run out.
HEADROOM = 64


class Decoder:
    """Rows being decoded by one trunk. `prefill` reads the prompts, `step` one more token for each row."""

    def __init__(self, trunk: FastTrunk, prompts: list[list[int]], longest: int) -> None:
        a = self.architecture = trunk.architecture
        self.trunk, self.layers = trunk, trunk.weights.current()
        self.rows, self.column, self.last = len(prompts), max(len(p) for p in prompts), longest
        device = a.norm.device
        lengths_B = torch.tensor([len(p) for p in prompts], device=device)
        self.positions_A = lengths_B.clone()
        self.padding_B = self.column - lengths_B
        self.padded = bool(self.padding_B.any())
        self.packed = Packed.of(prompts, [1] * len(prompts), device)
        self.turns_TC = trunk.turns(self.column + longest)
        self.norm_I, self.floor = a.norm * a.width**0.5, trunk.floor
        self._allocate(min(HEADROOM, longest))

    def _allocate(self, headroom: int) -> None:
        a, columns = self.architecture, self.column + headroom
        depth = len(self.layers)
        self.keys_LBKDT = a.norm.new_empty(depth, self.rows, a.kv_heads, a.head_dim, columns)
        self.values_LBKTD = a.norm.new_empty(depth, self.rows, a.kv_heads, columns, a.head_dim)
        if self.padded:
            hidden_BT = torch.arange(columns, device=a.norm.device)[None] < self.padding_B[:, None]
            mask_BT = torch.zeros_like(hidden_BT, dtype=a.norm.dtype).masked_fill_(hidden_BT, float("-inf"))
            self.mask_BK1T = mask_BT[:, None, None].repeat(1, a.kv_heads, 1, 1)
        self.headroom = headroom

    def prefill(self) -> Tensor:
        """hidden_BI of the last prompt token of every row; keys and values of all tokens go into the cache."""
        a, packed = self.architecture, self.packed
        turns_SC = self.turns_TC.index_select(0, packed.positions_S)
        layout = self.trunk.layout(packed, self.trunk.beside)
        row_S = torch.arange(self.rows, device=a.norm.device).repeat_interleave(packed.lengths_R)
        column_S = packed.positions_S + self.padding_B.repeat_interleave(packed.lengths_R)
        if self.padded:
            # Nobody sees them, but a product with something that is not a number would still not be one.
            self.keys_LBKDT[..., : self.column].zero_()
            self.values_LBKTD[..., : self.column, :].zero_()
        x_SI = a.embedding.index_select(0, packed.ids_S)
        for depth, layer in enumerate(self.layers):
            qkv_SE = layer.qkv(x_SI / length(x_SI, self.floor))
            answers_SE = attention_rows(qkv_SE, layout, turns_SC)
            k_SKD, v_SKD = qkv_SE.view(-1, a.heads, a.head_dim)[:, a.q_heads :].chunk(2, 1)
            self.keys_LBKDT[depth][row_S, :, :, column_S] = k_SKD
            self.values_LBKTD[depth][row_S, :, column_S] = v_SKD
            x_SI = self._after_attention(x_SI, answers_SE, layer)
        return self._norm(x_SI.index_select(0, packed.read_out_N))

    def step(self, tokens_A: Tensor) -> Tensor:
        """hidden_AI after one more token of every row still going."""
        a, rows, column = self.architecture, self.rows, self.column
        if self.headroom == 0:
            self._grow()
        turns_AC = self.turns_TC.index_select(0, self.positions_A[:rows])
        groups, dim, ends = a.q_heads // a.kv_heads, a.head_dim, column + 1
        x_AI = a.embedding.index_select(0, tokens_A)
        for depth, layer in enumerate(self.layers):
            qkv_AE = layer.qkv(x_AI / length(x_AI, self.floor))
            turn(qkv_AE, a.q_heads + a.kv_heads, dim, turns_AC)
            heads_AHD = qkv_AE.view(rows, a.heads, dim)
            keys, values = self.keys_LBKDT[depth, :rows], self.values_LBKTD[depth, :rows]
            keys[..., column] = heads_AHD[:, a.q_heads : a.q_heads + a.kv_heads]
            values[..., column, :] = heads_AHD[:, a.q_heads + a.kv_heads :]
            q = heads_AHD[:, : a.q_heads].reshape(rows * a.kv_heads, groups, dim)
            keys = keys.view(-1, dim, keys.shape[-1])[..., :ends]
            if self.padded:
                mask = self.mask_BK1T[:rows, ..., :ends].flatten(0, 1)
                shares = torch.baddbmm(mask, q, keys).softmax(-1)
            else:
                shares = torch.bmm(q, keys).softmax(-1)
            answers = torch.bmm(shares, values.view(-1, values.shape[-2], dim)[:, :ends])
            x_AI = self._after_attention(x_AI, answers.view(rows, -1), layer)
        self.column, self.headroom = ends, self.headroom - 1
        self.positions_A += 1
        return self._norm(x_AI)

    def keep(self, going: list[int]) -> list[int]:
        """Let only the given rows go on; returns the row that each place holds from now on.

        Rows from the end fill the places that became free, so few rows move.
        """
        count = len(going)
        staying = set(going)
        free = [row for row in range(count) if row not in staying]
        movers = [row for row in going if row >= count]
        order = list(range(count))
        if movers:
            to, source = torch.tensor(free), torch.tensor(movers)
            used = self.column
            self.keys_LBKDT[:, to, ..., :used] = self.keys_LBKDT[:, source, ..., :used]
            self.values_LBKTD[:, to, :, :used] = self.values_LBKTD[:, source, :, :used]
            self.positions_A[to] = self.positions_A[source]
            self.padding_B[to] = self.padding_B[source]
            if self.padded:
                self.mask_BK1T[to] = self.mask_BK1T[source]
            for place, row in zip(free, movers, strict=True):
                order[place] = row
        self.rows = count
        return order

    def _grow(self) -> None:
        keys, values, used = self.keys_LBKDT, self.values_LBKTD, self.column
        self._allocate(min(used, self.last))
        self.keys_LBKDT[..., :used] = keys[:, : self.rows, ..., :used]
        self.values_LBKTD[..., :used, :] = values[:, : self.rows, :, :used]

    def _after_attention(self, x: Tensor, answers: Tensor, layer: FoldedLayer) -> Tensor:
        x.addmm_(answers, layer.o.weight_OI.t())
        gate, up = layer.gate_up(x / length(x, self.floor)).chunk(2, -1)
        return x.addmm_(functional.silu(gate).mul_(up), layer.down.weight_OI.t())

    def _norm(self, x: Tensor) -> Tensor:
        return (x / length(x, self.floor)).mul_(self.norm_I)
