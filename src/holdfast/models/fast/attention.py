"""Attention over packed tokens: turned by position, laid out as rows, and back. Queries come already scaled.

Shapes: S tokens, N queries, R rows, Q queries and T keys of a row, E all heads' entries of a token, D of a head,
K key-value heads, H query heads (G for each key-value head).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
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


class Group:
    """The indices between packed tokens and the padded rows of one group.

    Padded queries are [R, H, Q, D] and keys with values [2, R, K, T, D], both flat but for D.
    """

    def __init__(self, reading: Reading, heads: Heads) -> None:
        self.reading, self.heads = reading, heads
        self.rows, self.queries = reading.query_RQ.shape
        self.keys = int(reading.key_RT.shape[1])
        self.query_count = int(self.rows * heads.q_heads * self.queries)
        self.key_value_count = int(2 * self.rows * heads.kv_heads * self.keys)

    def query_index(self, stride: int) -> Tensor:
        """For every padded query: its place among the heads of a packed tensor of `stride` heads."""
        head_H = torch.arange(self.heads.q_heads, device=self.reading.query_RQ.device)
        return (self.reading.query_RQ[:, None] * stride + head_H[None, :, None]).flatten()

    def key_value_index(self) -> Tensor:
        """For every padded key, then value: its place among the heads of the packed tensor."""
        h = self.heads
        head_2K = h.kv_offset + torch.arange(2 * h.kv_heads, device=self.reading.key_RT.device).view(2, 1, -1, 1)
        return (self.reading.key_RT[None, :, None] * h.kv_stride + head_2K).flatten()

    def query_places(self, flat_N: Tensor) -> Tensor:
        """For every head of the queries at these places of the padded rows: where it stands among the padded heads."""
        head_H = torch.arange(self.heads.q_heads, device=flat_N.device)
        row_N, column_N = flat_N // self.queries, flat_N % self.queries
        return (row_N[:, None] * self.heads.q_heads + head_H) * self.queries + column_N[:, None]

    def key_value_places(self) -> Tensor:
        """For every head of keys and values of every packed token: where it stands among the padded heads."""
        kv_heads, flat_S = self.heads.kv_heads, self.reading.answering_S
        head_2K = torch.arange(2 * kv_heads, device=flat_S.device)
        which, head = head_2K // kv_heads, head_2K % kv_heads
        row_S1, column_S1 = (flat_S // self.keys)[:, None], (flat_S % self.keys)[:, None]
        return ((which * self.rows + row_S1) * kv_heads + head) * self.keys + column_S1

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


class Layout:
    """The groups of a packed batch: all their padded queries one after another, then all keys and values."""

    def __init__(self, readings: Sequence[Reading], heads: Heads) -> None:
        self.heads = heads
        self.groups = [Group(reading, heads) for reading in readings]
        self.query_counts = [g.query_count for g in self.groups]
        self.key_value_counts = [g.key_value_count for g in self.groups]
        self.query_count = sum(self.query_counts)

    @cached_property
    def query_index(self) -> Tensor:
        """From a packed tensor to padded queries."""
        return torch.cat([g.query_index(self.heads.q_stride) for g in self.groups])

    @cached_property
    def spread_index(self) -> Tensor:
        """The same from a packed tensor of query heads alone."""
        return torch.cat([g.query_index(self.heads.q_heads) for g in self.groups])

    @cached_property
    def key_value_index(self) -> Tensor:
        return torch.cat([g.key_value_index() for g in self.groups])

    @cached_property
    def together_index(self) -> Tensor:
        return torch.cat([self.query_index, self.key_value_index])

    @cached_property
    def answer_index(self) -> Tensor:
        """From padded queries back to a packed tensor of query heads."""
        places = [g.query_places(g.reading.asking_N) for g in self.groups]
        return _one_after_another(places, self.query_counts).flatten()

    @cached_property
    def padding_index(self) -> Tensor:
        places = [g.query_places(g.reading.padding_P) for g in self.groups]
        return _one_after_another(places, self.query_counts).flatten()

    @cached_property
    def key_value_back(self) -> Tensor:
        """From padded keys and values back to a packed tensor of theirs."""
        places = [g.key_value_places() for g in self.groups]
        return _one_after_another(places, self.key_value_counts).flatten()

    @cached_property
    def together_back(self) -> Tensor:
        """Both, where every token asks and padded keys follow padded queries."""
        queries = self.answer_index.view(-1, self.heads.q_heads)
        key_values = self.key_value_back.view(-1, 2 * self.heads.kv_heads) + self.query_count
        return torch.cat([queries, key_values], 1).flatten()


def _one_after_another(places: Sequence[Tensor], counts: Sequence[int]) -> Tensor:
    return torch.cat([p + start for p, start in zip(places, accumulate([0, *counts[:-1]]), strict=True)])


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
        parts = zip(
            layout.groups,
            q.split_with_sizes(layout.query_counts),
            kv.split_with_sizes(layout.key_value_counts),
            strict=True,
        )
        learns = kv_SE.requires_grad
        ctx.attentions = [_attention(group, padded_q, padded_kv, learns) for group, padded_q, padded_kv in parts]
        ctx.layout, ctx.turns, ctx.apart = layout, (turns_NC, turns_SC), q_NE is not None
        answers = torch.cat([attention.answers() for attention in ctx.attentions])
        return answers.index_select(0, layout.answer_index).view(-1, h.q_heads * dim)

    @staticmethod
    def backward(ctx: Any, d_NE: Tensor) -> tuple[Tensor | None, Tensor, None, None, None]:
        layout, h, dim = ctx.layout, ctx.layout.heads, ctx.layout.heads.head_dim
        turns_NC, turns_SC = ctx.turns
        d = d_NE.reshape(-1, dim).index_select(0, layout.spread_index)
        if layout.padding_index.numel():
            d.index_fill_(0, layout.padding_index, 0.0)
        back = d.new_empty(layout.query_count + sum(layout.key_value_counts), dim)
        parts = zip(
            ctx.attentions,
            d.split_with_sizes(layout.query_counts),
            back[: layout.query_count].split_with_sizes(layout.query_counts),
            back[layout.query_count :].split_with_sizes(layout.key_value_counts),
            strict=True,
        )
        for attention, d_group, dq, dkv in parts:
            attention.backward(d_group, dq, dkv)
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


def _attention(group: Group, q: Tensor, kv: Tensor, learns: bool) -> _Short | _Long:
    short = group.keys <= SHORT and q.device.type == "cpu"
    return _Short(group, q, kv) if short else _Long(group, q, kv, learns)


class _Short:
    """Scores in memory, two batched products; query heads stacked onto the key-value head they share."""

    def __init__(self, group: Group, q: Tensor, kv: Tensor) -> None:
        self.group = group
        dim = group.heads.head_dim
        self.q = q.view(group.rows * group.heads.kv_heads, -1, dim)
        self.k, self.v = kv.view(2, group.rows * group.heads.kv_heads, -1, dim)

    def answers(self) -> Tensor:
        scores = torch.baddbmm(self.group.grouped_mask, self.q, self.k.mT)
        self.shares = torch.softmax(scores, -1)
        return torch.bmm(self.shares, self.v).view(-1, self.group.heads.head_dim)

    def backward(self, d: Tensor, dq: Tensor, dkv: Tensor) -> None:
        """The gradients of queries, keys and values into the memory given for them."""
        d = d.view_as(self.q)
        dk, dv = dkv.view(2, *self.k.shape)
        torch.bmm(self.shares.mT, d, out=dv)
        dscores = torch._softmax_backward_data(torch.bmm(d, self.v.mT), self.shares, -1, d.dtype)
        torch.bmm(dscores, self.k, out=dq.view_as(self.q))
        torch.bmm(dscores.mT, self.q, out=dk)


class _Long:
    """torch's own attention, whatever it is on this device."""

    def __init__(self, group: Group, q: Tensor, kv: Tensor, learns: bool) -> None:
        dim, rows = group.heads.head_dim, group.rows
        self.group = group
        self.q = q.view(rows, -1, group.queries, dim).detach().requires_grad_(learns)
        k, v = kv.view(2, rows, -1, group.keys, dim)
        self.k, self.v = k.detach().requires_grad_(learns), v.detach().requires_grad_(learns)

    def answers(self) -> Tensor:
        every = self.group.reading.visible_RQT is None
        with torch.set_grad_enabled(self.q.requires_grad):
            self.out = functional.scaled_dot_product_attention(
                self.q,
                self.k,
                self.v,
                attn_mask=None if every else self.group.mask,
                is_causal=every,
                scale=1.0,
                enable_gqa=self.group.heads.q_heads != self.group.heads.kv_heads,
            )
        return self.out.detach().reshape(-1, self.group.heads.head_dim)

    def backward(self, d: Tensor, dq: Tensor, dkv: Tensor) -> None:
        found = torch.autograd.grad(self.out, (self.q, self.k, self.v), d.view_as(self.out))
        dk, dv = dkv.view(2, *self.k.shape)
        for gradient, into in zip(found, (dq.view_as(self.q), dk, dv), strict=True):
            into.copy_(gradient)
