"""Decoding with a preallocated cache: one token or several for every row still going, rows that ended moved away.

Keys are kept as [L, B, K, D, T] and values as [L, B, K, T, D], so that a query's scores and its answer are both a row
times a matrix in memory order. Rows going on are always the first A of the cache, so a step works on views. Once some
of them have gone on by more tokens than others, each has an end of its own among the columns.

Shapes: L layers, B rows, A rows still going, K key-value heads, G query heads of each, D of a head, T columns, I
hidden, E entries of all heads, S tokens end to end, Q most tokens that a row goes on by.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from holdfast.models.fast.attention import attention_rows, turn
from holdfast.models.fast.blocks import length
from holdfast.models.fast.fold import FoldedLayer
from holdfast.models.fast.packing import Packed
from holdfast.models.fast.trunk import FastTrunk

# Columns a cache starts with beyond the prompts; it doubles that when they run out.
HEADROOM = 64


class _LayerCache:
    """One layer's weights, and its part of the cache for the rows still going."""

    def __init__(self, layer: FoldedLayer, queries: int) -> None:
        self.qkv, self.o, self.gate_up, self.down = layer.all
        self.q = self.qkv.rows(0, queries)
        self.kv = self.qkv.rows(queries, int(self.qkv.products.weight_OI.shape[0]))

    def hold(self, keys_BKDT: Tensor, values_BKTD: Tensor, rows: int) -> None:
        """Views for the first `rows` rows: made when that number changes and not at every token."""
        self.keys_AKDT, self.values_AKTD = keys_BKDT[:rows], values_BKTD[:rows]
        self.keys_flat, self.values_flat = self.keys_AKDT.flatten(0, 1), self.values_AKTD.flatten(0, 1)


class Decoder:
    """Rows being decoded by one trunk. `prefill` reads prompts, `step` one more token of each row, `extend` several."""

    def __init__(self, trunk: FastTrunk, prompts: list[list[int]], longest: int) -> None:
        a = self.architecture = trunk.architecture
        self.trunk = trunk
        self.layers = [_LayerCache(layer, a.q_heads * a.head_dim) for layer in trunk.weights.current()]
        self.rows, self.column, self.last = len(prompts), max(len(p) for p in prompts), longest
        device = a.norm.device
        lengths_B = torch.tensor([len(p) for p in prompts], device=device)
        self.positions_A = lengths_B.clone()
        self.padding_B = self.column - lengths_B
        self.padded = bool(self.padding_B.any())
        self.packed = Packed.of(prompts, [1] * len(prompts), device)
        self.turns_TC = trunk.turns(self.column + longest)
        self.norm_I, self.floor = a.norm * a.width**0.5, trunk.floor
        self.ends_B: Tensor | None = None  # where each row's columns end, once they do not end together
        self._allocate(min(HEADROOM, longest))

    def _allocate(self, headroom: int) -> None:
        a, columns = self.architecture, self.column + headroom
        depth = len(self.layers)
        self.keys_LBKDT = a.norm.new_empty(depth, self.rows, a.kv_heads, a.head_dim, columns)
        self.values_LBKTD = a.norm.new_empty(depth, self.rows, a.kv_heads, columns, a.head_dim)
        if self.padded:
            hidden_BT = torch.arange(columns, device=a.norm.device)[None] < self.padding_B[: self.rows, None]
            mask_BT = torch.zeros_like(hidden_BT, dtype=a.norm.dtype).masked_fill_(hidden_BT, float("-inf"))
            self.mask_BK1T = mask_BT[:, None, None].repeat(1, a.kv_heads, 1, 1)
        self.headroom = headroom
        self._hold()

    def _hold(self) -> None:
        for depth, layer in enumerate(self.layers):
            layer.hold(self.keys_LBKDT[depth], self.values_LBKTD[depth], self.rows)

    def prefill(self) -> Tensor:
        """hidden_BI of the last prompt token of every row; keys and values of all tokens go into the cache."""
        a, packed = self.architecture, self.packed
        turns_SC = self.turns_TC.index_select(0, packed.positions_S)
        layout = self.trunk.layout(packed, self.trunk.beside)
        cached = self._cached_index()
        x_SI = a.embedding.index_select(0, packed.ids_S)
        for layer in self.layers:
            qkv_SE = self._project(x_SI, layer)
            answers_SE = attention_rows(qkv_SE, layout, turns_SC)
            kv = qkv_SE.view(-1, a.head_dim).index_select(0, cached)
            k_BKTD, v_BKTD = kv.view(2, self.rows, a.kv_heads, self.column, a.head_dim)
            layer.keys_AKDT[..., : self.column] = k_BKTD.mT
            layer.values_AKTD[..., : self.column, :] = v_BKTD
            x_SI = self._after_attention(x_SI, answers_SE, layer)
        return self._norm(x_SI.index_select(0, packed.wanted.query_N))

    def _cached_index(self) -> Tensor:
        """For [2, B, K, T], keys then values of prompts padded on the left: the place of each among the packed heads.

        Padding repeats the first token of its row; the mask hides it.
        """
        a, packed = self.architecture, self.packed
        column_T = torch.arange(self.column, device=a.norm.device)
        token_BT = packed.starts_R[:, None] + (column_T[None] - self.padding_B[:, None]).clamp_min(0)
        head_2K = a.q_heads + torch.arange(2 * a.kv_heads, device=a.norm.device).view(2, 1, -1, 1)
        return (token_BT[None, :, None] * a.heads + head_2K).flatten()

    def step(self, tokens_A: Tensor) -> Tensor:
        """hidden_AI after one more token of every row still going, all of whose columns end together."""
        if self.headroom == 0:
            self._grow()
        a, rows, column = self.architecture, self.rows, self.column
        turns_AC = self.turns_TC.index_select(0, self.positions_A[:rows])
        dim, ends = a.head_dim, column + 1
        mask = self.mask_BK1T[:rows, ..., :ends].flatten(0, 1) if self.padded else None
        x_AI = a.embedding.index_select(0, tokens_A)
        for layer in self.layers:
            qkv_AE = self._project(x_AI, layer)
            turn(qkv_AE, a.q_heads + a.kv_heads, dim, turns_AC)
            q_AHD, k_AKD, v_AKD = qkv_AE.view(rows, a.heads, dim).split_with_sizes(
                (a.q_heads, a.kv_heads, a.kv_heads), 1
            )
            layer.keys_AKDT.select(-1, column).copy_(k_AKD)
            layer.values_AKTD.select(-2, column).copy_(v_AKD)
            q = q_AHD.reshape(rows * a.kv_heads, -1, dim)
            keys, values = layer.keys_flat.narrow(-1, 0, ends), layer.values_flat.narrow(-2, 0, ends)
            scores = torch.bmm(q, keys) if mask is None else torch.baddbmm(mask, q, keys)
            answers = torch.bmm(scores.softmax(-1), values)
            x_AI = self._after_attention(x_AI, answers.view(rows, -1), layer)
        self.column, self.headroom = ends, self.headroom - 1
        self.positions_A += 1
        return self._norm(x_AI)

    def extend(self, tokens: list[list[int]]) -> Tensor:
        """hidden_AI after some more tokens of every row still going, at least one of each."""
        a, rows, device = self.architecture, self.rows, self.architecture.norm.device
        if self.ends_B is None:
            self.ends_B = torch.full((rows,), self.column, device=device)
            self._clear()
        counts_A = torch.tensor([len(own) for own in tokens], device=device)
        while self.headroom < int(counts_A.max()):
            self._grow()
        starts_A = counts_A.cumsum(0) - counts_A
        row_S = torch.arange(rows, device=device).repeat_interleave(counts_A)
        within_S = torch.arange(len(row_S), device=device) - starts_A[row_S]
        cells = row_S, self.ends_B[row_S] + within_S
        # Padded queries, which repeat their row's last.
        within_AQ = torch.minimum(torch.arange(int(counts_A.max()), device=device)[None], counts_A[:, None] - 1)
        query_AQ, padded_S = starts_A[:, None] + within_AQ, row_S * within_AQ.shape[1] + within_S
        ends = max(self.column, int((self.ends_B[:rows] + counts_A).max()))
        mask = self._hidden(self.ends_B[:rows, None] + within_AQ, ends)
        turns_SC = self.turns_TC.index_select(0, self.positions_A[row_S] + within_S)
        x_SI = a.embedding.index_select(0, torch.tensor([t for own in tokens for t in own], device=device))
        for layer in self.layers[:-1]:
            qkv_SE = self._project(x_SI, layer)
            turn(qkv_SE, a.q_heads + a.kv_heads, a.head_dim, turns_SC)
            q_SHD, kv_SHD = qkv_SE.view(-1, a.heads, a.head_dim).split_with_sizes((a.q_heads, 2 * a.kv_heads), 1)
            answers = self._answers(q_SHD[query_AQ], kv_SHD, cells, mask, layer)
            x_SI = self._after_attention(x_SI, answers.flatten(0, 1).index_select(0, padded_S), layer)
        # The last of a row's padded queries is its last token's, and so is the last row of the mask of each head.
        last_mask = mask[:, within_AQ.shape[1] - 1 :: within_AQ.shape[1]]
        x_AI = self._read_out(x_SI, starts_A + counts_A - 1, cells, last_mask, turns_SC)
        self.headroom -= ends - self.column
        self.column = ends
        self.ends_B[:rows] += counts_A
        self.positions_A[:rows] += counts_A
        return self._norm(x_AI)

    def _read_out(
        self, x_SI: Tensor, last_A: Tensor, cells: tuple[Tensor, Tensor], mask: Tensor, turns_SC: Tensor
    ) -> Tensor:
        """The last layer: of a row's other tokens nothing but keys and values is ever asked for."""
        a, layer = self.architecture, self.layers[-1]
        unit_SI = x_SI / length(x_SI, self.floor)
        q_AE, kv_SE = layer.q(unit_SI.index_select(0, last_A)), layer.kv(unit_SI)
        turn(q_AE, a.q_heads, a.head_dim, turns_SC.index_select(0, last_A))
        turn(kv_SE, a.kv_heads, a.head_dim, turns_SC)
        q_A1HD, kv_SHD = q_AE.view(-1, 1, a.q_heads, a.head_dim), kv_SE.view(-1, 2 * a.kv_heads, a.head_dim)
        answers_AE = self._answers(q_A1HD, kv_SHD, cells, mask, layer).squeeze(1)
        return self._after_attention(x_SI.index_select(0, last_A), answers_AE, layer)

    def _answers(
        self, q_AQHD: Tensor, kv_SHD: Tensor, cells: tuple[Tensor, Tensor], mask: Tensor, layer: _LayerCache
    ) -> Tensor:
        """answers_AQE of padded queries, once keys and values of all tokens are in their cells of the cache."""
        a, (row_S, column_S) = self.architecture, cells
        rows, most, ends = q_AQHD.shape[0], q_AQHD.shape[1], mask.shape[-1]
        k_SKD, v_SKD = kv_SHD.split_with_sizes((a.kv_heads, a.kv_heads), 1)
        layer.keys_AKDT[row_S, :, :, column_S] = k_SKD
        layer.values_AKTD[row_S, :, column_S] = v_SKD
        q_AKGQD = q_AQHD.reshape(rows, most, a.kv_heads, -1, a.head_dim).permute(0, 2, 3, 1, 4)
        q = q_AKGQD.reshape(rows * a.kv_heads, -1, a.head_dim)
        keys, values = layer.keys_flat.narrow(-1, 0, ends), layer.values_flat.narrow(-2, 0, ends)
        answers = torch.bmm(torch.baddbmm(mask, q, keys).softmax(-1), values)
        answers_AKGQD = answers.view(rows, a.kv_heads, -1, most, a.head_dim)
        return answers_AKGQD.permute(0, 3, 1, 2, 4).reshape(rows, most, -1)

    def _hidden(self, last_AQ: Tensor, ends: int) -> Tensor:
        """-inf where a query may not look, behind its own place and before its row's first: [A * K, G * Q, T]."""
        a, (rows, most) = self.architecture, last_AQ.shape
        column_T = torch.arange(ends, device=last_AQ.device)
        hidden_AQT = (column_T > last_AQ[..., None]) | (column_T < self.padding_B[:rows, None, None])
        mask_AQT = torch.zeros(rows, most, ends, device=last_AQ.device).masked_fill_(hidden_AQT, float("-inf"))
        groups = a.q_heads // a.kv_heads
        return mask_AQT[:, None, None].expand(-1, a.kv_heads, groups, -1, -1).reshape(-1, groups * most, ends)

    def _clear(self) -> None:
        """Where columns do not end together, what is not yet written is read too, and has to be numbers."""
        self.keys_LBKDT[..., self.column :] = 0.0
        self.values_LBKTD[..., self.column :, :] = 0.0

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
            if self.ends_B is not None:
                self.ends_B[to] = self.ends_B[source]
            if self.padded:
                self.mask_BK1T[to] = self.mask_BK1T[source]
            for place, row in zip(free, movers, strict=True):
                order[place] = row
        self.rows = count
        self._hold()
        return order

    def _grow(self) -> None:
        keys, values, used = self.keys_LBKDT, self.values_LBKTD, self.column
        self._allocate(min(used, self.last))
        self.keys_LBKDT[..., :used] = keys[:, : self.rows, ..., :used]
        self.values_LBKTD[..., :used, :] = values[:, : self.rows, :, :used]
        if self.ends_B is not None:
            self._clear()

    def _project(self, x: Tensor, layer: _LayerCache) -> Tensor:
        return layer.qkv(x / length(x, self.floor))

    def _after_attention(self, x: Tensor, answers: Tensor, layer: _LayerCache) -> Tensor:
        x = layer.o.add_to(x, answers)
        gate, up = layer.gate_up(x / length(x, self.floor)).chunk(2, -1)
        return layer.down.add_to(x, functional.silu(gate).mul_(up))

    def _norm(self, x: Tensor) -> Tensor:
        return (x / length(x, self.floor)).mul_(self.norm_I)
