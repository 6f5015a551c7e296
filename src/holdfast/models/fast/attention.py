"""Attention over packed tokens: turned by position, laid out as rows, and back. Queries come already scaled.

Shapes: S tokens, N queries, R rows, Q queries and T keys of a row, E all heads' entries of a token, D of a head,
K key-value heads, H query heads (G for each key-value head).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from holdfast.models.fast.packing import Reading

# Rows up to this long are quickest as two batched products with the scores in memory, on a CPU.
SHORT = 160


@dataclass(frozen=True)
class Heads:
    """Where each head's entries stand: queries in a tensor of `q_stride` heads, keys and values in one of `kv_stride`.

    Keys start at head `kv_offset` of their tensor, values right after them.
    """

    q_heads: int
    kv_heads: int
    head_dim: int
    q_stride: int
    kv_stride: int
    kv_offset: int


class Layout:
    """The indices between packed tokens and padded rows, for one arrangement of heads.

    Padded queries are [R, H, Q, D] and keys with values [2, R, K, T, D], both flat but for D.
    """

    def __init__(self, reading: Reading, heads: Heads) -> None:
        self.reading, self.heads = reading, heads
        self.rows, self.queries = reading.query_RQ.shape
        self.keys = int(reading.key_RT.shape[1])

    @property
    def query_count(self) -> int:
        return int(self.rows * self.heads.q_heads * self.queries)

    @property
    def key_count(self) -> int:
        return int(self.rows * self.heads.kv_heads * self.keys)

    @cached_property
    def query_index(self) -> Tensor:
        """For every padded query: its place among the heads of the packed tensor it comes from."""
        return self._asking(self.heads.q_stride)

    @cached_property
    def spread_index(self) -> Tensor:
        """The same for a packed tensor of query heads alone."""
        return self._asking(self.heads.q_heads)

    def _asking(self, stride: int) -> Tensor:
        head_H = torch.arange(self.heads.q_heads, device=self.reading.query_RQ.device)
        return (self.reading.query_RQ[:, None] * stride + head_H[None, :, None]).flatten()

    @cached_property
    def key_value_index(self) -> Tensor:
        """For every padded key, then value: its place among the heads of the packed tensor."""
        h = self.heads
        head_2K = h.kv_offset + torch.arange(2 * h.kv_heads, device=self.reading.key_RT.device).view(2, 1, -1, 1)
        return (self.reading.key_RT[None, :, None] * h.kv_stride + head_2K).flatten()

    @cached_property
    def together_index(self) -> Tensor:
        return torch.cat([self.query_index, self.key_value_index])

    @cached_property
    def answer_index(self) -> Tensor:
        """For every head of every packed query: its place among the padded ones."""
        return self._head_places(self.reading.asking_N)

    @cached_property
    def padding_index(self) -> Tensor:
        return self._head_places(self.reading.padding_P)

    def _head_places(self, flat_N: Tensor) -> Tensor:
        head_H = torch.arange(self.heads.q_heads, device=flat_N.device)
        row_N, column_N = flat_N // self.queries, flat_N % self.queries
        return ((row_N[:, None] * self.heads.q_heads + head_H) * self.queries + column_N[:, None]).flatten()

    @cached_property
    def key_value_back(self) -> Tensor:
        """For every head of keys and values of every packed token: its place among the padded ones."""
        kv_heads, flat_S = self.heads.kv_heads, self.reading.answering_S
        head_2K = torch.arange(2 * kv_heads, device=flat_S.device)
        which, head = head_2K // kv_heads, head_2K % kv_heads
        row_S1, column_S1 = (flat_S // self.keys)[:, None], (flat_S % self.keys)[:, None]
        return (((which * self.rows + row_S1) * kv_heads + head) * self.keys + column_S1).flatten()

    @cached_property
    def together_back(self) -> Tensor:
        """Both, where every token asks and padded keys follow padded queries."""
        tokens = self.reading.asking_N.numel()
        key_value = self.key_value_back.view(tokens, -1) + self.query_count
        return torch.cat([self.answer_index.view(tokens, -1), key_value], 1).flatten()

    @cached_property
    def mask(self) -> Tensor:
        """0 where a query may look, -inf elsewhere, as [1 or R, 1, Q, T]."""
        visible = self.reading.visible_RQT
        if visible is None:
            size = torch.arange(self.keys, device=self.reading.key_RT.device)
            visible = (size[None] <= size[:, None])[None]
        return torch.zeros(visible.shape, device=visible.device).masked_fill_(~visible, float("-inf"))[:, None]

    @cached_property
    def grouped_mask(self) -> Tensor:
        """The mask for query heads stacked onto their key-value head: [R * K, G * Q, T], or broadcast to it."""
        groups = self.heads.q_heads // self.heads.kv_heads
        if self.mask.shape[0] == 1:
            return self.mask[0].expand(groups, -1, -1).reshape(1, groups * self.queries, self.keys)
        shape = (self.rows, self.heads.kv_heads, groups, self.queries, self.keys)
        return self.mask[:, None].expand(shape).reshape(-1, groups * self.queries, self.keys)


def turn(x_SE: Tensor, heads: int, head_dim: int, turns_SC: Tensor) -> None:
    """Rotary embedding in place: every adjacent pair of the first `heads` heads is one complex number."""
    pairs = x_SE.view(x_SE.shape[0], -1, head_dim // 2, 2)[:, :heads]
    torch.view_as_complex(pairs).mul_(turns_SC[:, None])


class Attend(Function):
    """Answers of attention for packed queries, from packed queries, keys and values that are not yet turned.

    `q_NE` is None where queries stand beside keys and values in `kv_SE`. Turns both in place.
    """

    @staticmethod
    def forward(
        ctx: Any, q_NE: Tensor | None, kv_SE: Tensor, layout: Layout, turns_NC: Tensor, turns_SC: Tensor
    ) -> Tensor:
        h, dim = layout.heads, layout.heads.head_dim
        if q_NE is None:
            turn(kv_SE, h.q_heads + h.kv_heads, dim, turns_SC)
            both = kv_SE.view(-1, dim).index_select(0, layout.together_index)
            q, kv = both[: layout.query_count], both[layout.query_count :]
        else:
            turn(q_NE, h.q_heads, dim, turns_NC)
            turn(kv_SE, h.kv_heads, dim, turns_SC)
            q = q_NE.view(-1, dim).index_select(0, layout.query_index)
            kv = kv_SE.view(-1, dim).index_select(0, layout.key_value_index)
        ctx.attention = attention = _attention(layout, q, kv, kv_SE.requires_grad)
        ctx.layout, ctx.turns, ctx.apart = layout, (turns_NC, turns_SC), q_NE is not None
        return attention.answers().index_select(0, layout.answer_index).view(-1, h.q_heads * dim)

    @staticmethod
    def backward(ctx: Any, d_NE: Tensor) -> tuple[Tensor | None, Tensor, None, None, None]:
        layout, h, dim = ctx.layout, ctx.layout.heads, ctx.layout.heads.head_dim
        turns_NC, turns_SC = ctx.turns
        d = d_NE.reshape(-1, dim).index_select(0, layout.spread_index)
        if layout.reading.padding_P.numel():
            d.index_fill_(0, layout.padding_index, 0.0)
        back = ctx.attention.backward(d)
        if not ctx.apart:
            d_SE = back.index_select(0, layout.together_back).view(-1, (h.q_heads + 2 * h.kv_heads) * dim)
            turn(d_SE, h.q_heads + h.kv_heads, dim, turns_SC.conj())
            return None, d_SE, None, None, None
        dq_NE = back[: layout.query_count].index_select(0, layout.answer_index).view(-1, h.q_heads * dim)
        dkv_SE = back[layout.query_count :].index_select(0, layout.key_value_back).view(-1, 2 * h.kv_heads * dim)
        turn(dq_NE, h.q_heads, dim, turns_NC.conj())
        turn(dkv_SE, h.kv_heads, dim, turns_SC.conj())
        return dq_NE, dkv_SE, None, None, None


def attention_rows(qkv_SE: Tensor, layout: Layout, turns_SC: Tensor) -> Tensor:
    """`Attend` without gradients, for queries beside their keys; turns queries and keys in place."""
    return Attend.apply(None, qkv_SE, layout, turns_SC, turns_SC)  # type: ignore[no-any-return, no-untyped-call]


def _attention(layout: Layout, q: Tensor, kv: Tensor, learns: bool) -> _Short | _Long:
    short = layout.keys <= SHORT and q.device.type == "cpu"
    return _Short(layout, q, kv) if short else _Long(layout, q, kv, learns)


class _Short:
    """Scores in memory, two batched products; query heads stacked onto the key-value head they share."""

    def __init__(self, layout: Layout, q: Tensor, kv: Tensor) -> None:
        self.layout = layout
        dim = layout.heads.head_dim
        self.q = q.view(layout.rows * layout.heads.kv_heads, -1, dim)
        self.k, self.v = kv.view(2, layout.rows * layout.heads.kv_heads, -1, dim)

    def answers(self) -> Tensor:
        scores = torch.baddbmm(self.layout.grouped_mask, self.q, self.k.mT)
        self.shares = torch.softmax(scores, -1)
        return torch.bmm(self.shares, self.v).view(-1, self.layout.heads.head_dim)

    def backward(self, d: Tensor) -> Tensor:
        layout = self.layout
        d = d.view_as(self.q)
        back = d.new_empty(layout.query_count + 2 * layout.key_count, layout.heads.head_dim)
        dq = back[: layout.query_count].view_as(self.q)
        dk, dv = back[layout.query_count :].view(2, *self.k.shape)
        torch.bmm(self.shares.mT, d, out=dv)
        dscores = torch._softmax_backward_data(d @ self.v.mT, self.shares, -1, d.dtype)
        torch.bmm(dscores, self.k, out=dq)
        torch.bmm(dscores.mT, self.q, out=dk)
        return back


class _Long:
    """torch's own attention, whatever it is on this device."""

    def __init__(self, layout: Layout, q: Tensor, kv: Tensor, learns: bool) -> None:
        dim, rows = layout.heads.head_dim, layout.rows
        self.layout = layout
        self.q = q.view(rows, -1, layout.queries, dim).requires_grad_(learns)
        k, v = kv.view(2, rows, -1, layout.keys, dim)
        self.k, self.v = k.detach().requires_grad_(learns), v.detach().requires_grad_(learns)

    def answers(self) -> Tensor:
        every = self.layout.reading.visible_RQT is None
        with torch.set_grad_enabled(self.q.requires_grad):
            self.out = functional.scaled_dot_product_attention(
                self.q,
                self.k,
                self.v,
                attn_mask=None if every else self.layout.mask,
                is_causal=every,
                scale=1.0,
                enable_gqa=self.layout.heads.q_heads != self.layout.heads.kv_heads,
            )
        return self.out.detach().reshape(-1, self.layout.heads.head_dim)

    def backward(self, d: Tensor) -> Tensor:
        dq, dk, dv = torch.autograd.grad(self.out, (self.q, self.k, self.v), d.view_as(self.out))
        dim = self.layout.heads.head_dim
        return torch.cat([dq.reshape(-1, dim), dk.reshape(-1, dim), dv.reshape(-1, dim)])
