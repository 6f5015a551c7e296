"""Weights as the fast path wants them: projections side by side, norms multiplied in, rotary pairs adjacent.

An RMS norm with weight w before a projection W is W (w * x / rms(x)) = V u, with the unit vector u = x / |x| of I
entries and V = sqrt(I) W diag w. Folding w in saves a pass over the tokens, forwards and backwards, for one over the
weights. From the gradient dV follow dW = sqrt(I) dV diag w and dw = sqrt(I) times the sum over rows of dV * W. The
scale 1 / sqrt(D) of attention's scores goes into the rows of the queries the same way.

Rotary embeddings turn the pairs (i, i + D/2) of a head. With the rows of the query and key projections reordered so
that a pair is adjacent, the turn is one complex product in place; scores q.k do not depend on the order.

A LoRA adapter beside a projection, scale * B A, is folded the same way, A like the columns and B like the rows of W,
and stays two thin matrices. Models with adapters on one frozen base share its folded weights.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.graph import increment_version
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from holdfast.models.fast.architecture import Adapter, Architecture, Layer, Linear
from holdfast.models.fast.products import MOST_WEIGHTS, Products


def _say_that_weights_moved(optimiser: Optimizer, *_: Any) -> None:
    increment_version([p for group in optimiser.param_groups for p in group["params"]])


# Every change in place raises a tensor's version, by which folded weights know that they are stale. Fused optimisers
# write past that count, so it is raised for them, for every optimiser of the process.
register_optimizer_step_post_hook(_say_that_weights_moved)


class Gradient:
    """Where the gradient of one folded matrix (and its bias) adds up during a backward pass."""

    def __init__(self) -> None:
        self.weight_OI: Tensor | None = None
        self.bias_O: Tensor | None = None

    def add(self, dy_SO: Tensor, x_SI: Tensor, with_bias: bool) -> None:
        if self.weight_OI is None:
            self.weight_OI = dy_SO.t() @ x_SI
        else:
            self.weight_OI.addmm_(dy_SO.t(), x_SI)
        if with_bias:
            self.bias_O = dy_SO.sum(0) if self.bias_O is None else self.bias_O.add_(dy_SO.sum(0))


class RowsOfGradient(Gradient):
    """Some rows of another matrix's gradient."""

    def __init__(self, whole: Gradient, shape: tuple[int, int], rows: slice) -> None:
        super().__init__()
        self.whole, self.shape, self.rows = whole, shape, rows

    def add(self, dy_SO: Tensor, x_SI: Tensor, with_bias: bool) -> None:
        if self.whole.weight_OI is None:
            self.whole.weight_OI = x_SI.new_zeros(self.shape)
            self.whole.bias_O = x_SI.new_zeros(self.shape[0]) if with_bias else None
        self.whole.weight_OI[self.rows].addmm_(dy_SO.t(), x_SI)
        if self.whole.bias_O is not None:
            self.whole.bias_O[self.rows] += dy_SO.sum(0)


class LowGradient:
    """The same for folded adapters."""

    def __init__(self) -> None:
        self.a_RI: Tensor | None = None
        self.b_OR: Tensor | None = None


@dataclass(frozen=True)
class FoldedLow:
    """The adapters of a folded matrix, all in one: y += B A u. `rows` are those of B when only some are asked for."""

    a_RI: Tensor
    b_OR: Tensor
    gradient: LowGradient | None = None
    rows: slice = field(default_factory=lambda: slice(None))

    def add_to(self, y_SO: Tensor, x_SI: Tensor) -> Tensor:
        return y_SO.addmm_(x_SI @ self.a_RI.t(), self.b_OR[self.rows].t())

    def back(self, dy_SO: Tensor, x_SI: Tensor, dx_SI: Tensor) -> Tensor:
        """Add to the gradients of A, B and x, the last into `dx`'s memory."""
        inner_SR = dy_SO @ self.b_OR[self.rows]
        if (gradient := self.gradient) is not None:
            if gradient.a_RI is None or gradient.b_OR is None:
                gradient.a_RI, gradient.b_OR = torch.zeros_like(self.a_RI), torch.zeros_like(self.b_OR)
            gradient.a_RI.addmm_(inner_SR.t(), x_SI)
            gradient.b_OR[self.rows].addmm_(dy_SO.t(), x_SI @ self.a_RI.t())
        return dx_SI.addmm_(inner_SR, self.a_RI)


@dataclass(frozen=True)
class Folded:
    """A matrix made of several projections, with the norm before them multiplied in.

    `gradient` is None where nothing of it learns; `low` is what adapters add.
    """

    products: Products
    bias_O: Tensor | None
    gradient: Gradient | None = None
    low: FoldedLow | None = None

    def __call__(self, x_SI: Tensor) -> Tensor:
        y_SO = self.products.times(x_SI, self.bias_O)
        return y_SO if self.low is None else self.low.add_to(y_SO, x_SI)

    def add_to(self, y_SO: Tensor, x_SI: Tensor) -> Tensor:
        """y + W x, in y's memory or in fresh one, for a matrix without a bias."""
        y_SO = self.products.add_times(y_SO, x_SI)
        return y_SO if self.low is None else self.low.add_to(y_SO, x_SI)

    def back(self, dy_SO: Tensor, x_SI: Tensor) -> Tensor:
        """The gradient of x; that of the matrix adds up where it learns."""
        if self.gradient is not None:
            self.gradient.add(dy_SO, x_SI, self.bias_O is not None)
        dx_SI = self.products.back(dy_SO)
        return dx_SI if self.low is None else self.low.back(dy_SO, x_SI, dx_SI)

    def rows(self, start: int, stop: int) -> Folded:
        """Some of the projections alone."""
        bias_O = None if self.bias_O is None else self.bias_O[start:stop]
        weight_OI = self.products.weight_OI
        shape = (int(weight_OI.shape[0]), int(weight_OI.shape[1]))
        rows = slice(start, stop)
        gradient = None if self.gradient is None else RowsOfGradient(self.gradient, shape, rows)
        low = None if self.low is None else FoldedLow(self.low.a_RI, self.low.b_OR, self.low.gradient, rows)
        return Folded(self.products.rows(start, stop), bias_O, gradient, low)


class Projections:
    """How some linear layers after one norm become one folded matrix, and how its gradient goes back to them."""

    def __init__(self, norm: Tensor | None, parts: Sequence[FoldedRows]) -> None:
        self.norm, self.parts = norm, list(parts)
        self.has_bias = any(part.layer.bias is not None for part in parts)
        # A single matrix that nothing is folded into is used as it is.
        self.bare = norm is None and len(parts) == 1

    @property
    def parameters(self) -> list[Tensor]:
        own = [p for part in self.parts for p in (part.layer.weight, part.layer.bias) if p is not None]
        return own if self.norm is None else [self.norm, *own]

    @property
    def adapters(self) -> list[Adapter]:
        return [part.layer.adapter for part in self.parts if part.layer.adapter is not None]

    @property
    def low_parameters(self) -> list[Tensor]:
        return [matrix for adapter in self.adapters for matrix in (adapter.a_RI, adapter.b_OR)]

    def _columns(self) -> Tensor:
        """What the norm multiplies the columns by."""
        assert self.norm is not None
        return self.norm.mul(self.norm.numel() ** 0.5)

    @torch.no_grad()
    def fold(self, packs: bool) -> Folded:
        if self.bare:
            return Folded(Products(self.parts[0].layer.weight.detach(), packs), None)
        weight_OI = torch.cat([part.taken(part.layer.weight) for part in self.parts]).mul_(self._columns())
        bias_O = None
        if self.has_bias:
            none = [part.layer.weight.new_zeros(part.layer.weight.shape[0]) for part in self.parts]
            biases = [part.layer.bias for part in self.parts]
            bias_O = torch.cat(
                [z if b is None else part.taken(b) for part, b, z in zip(self.parts, biases, none, strict=True)]
            )
        return Folded(Products(weight_OI, packs), bias_O)

    @torch.no_grad()
    def fold_low(self) -> FoldedLow | None:
        """All adapters as one: their A above each other, their B as blocks on a diagonal."""
        adapters = self.adapters
        if not adapters:
            return None
        a_RI = torch.cat([adapter.a_RI for adapter in adapters])
        if self.norm is not None:
            a_RI.mul_(self._columns())
        outputs = sum(part.layer.weight.shape[0] for part in self.parts)
        b_OR = a_RI.new_zeros(outputs, a_RI.shape[0])
        for part, adapter, rows, ranks in self._blocks():
            b_OR[rows, ranks] = part.taken(adapter.b_OR) * adapter.scale
        return FoldedLow(a_RI, b_OR)

    @torch.no_grad()
    def unfold_low(self, low: FoldedLow | None) -> list[Tensor | None]:
        """The gradients of `low_parameters`, in their order."""
        gradients: list[Tensor | None] = []
        for part, adapter, rows, ranks in self._blocks():
            gradient = None if low is None else low.gradient
            if gradient is None or gradient.a_RI is None or gradient.b_OR is None:
                gradients += [None, None]
                continue
            a_RI = gradient.a_RI[ranks]
            b_OR = part.given_back(gradient.b_OR[rows, ranks]) * adapter.scale
            gradients += [a_RI.clone() if self.norm is None else a_RI * self._columns(), b_OR]
        return gradients

    def _blocks(self) -> list[tuple[FoldedRows, Adapter, slice, slice]]:
        """Each part that has an adapter with its rows of the folded matrix and its share of the ranks."""
        blocks = []
        row = rank = 0
        for part in self.parts:
            rows = slice(row, row + part.layer.weight.shape[0])
            row = rows.stop
            if part.layer.adapter is not None:
                ranks = slice(rank, rank + part.layer.adapter.a_RI.shape[0])
                rank = ranks.stop
                blocks.append((part, part.layer.adapter, rows, ranks))
        return blocks

    @torch.no_grad()
    def unfold(self, gradient: Gradient | None) -> list[Tensor | None]:
        """The gradients of `parameters`, in their order."""
        if gradient is None or gradient.weight_OI is None:
            return [None] * len(self.parameters)
        if self.bare:
            return [gradient.weight_OI]
        assert self.norm is not None
        gradients: list[Tensor | None] = []
        columns_I = self._columns()
        norm_I = torch.zeros_like(self.norm)
        start = 0
        for part in self.parts:
            stop = start + part.layer.weight.shape[0]
            weight_OI = part.given_back(gradient.weight_OI[start:stop])
            norm_I += torch.linalg.vecdot(weight_OI, part.layer.weight, dim=0)
            gradients.append(weight_OI * columns_I)
            if part.layer.bias is not None:
                assert gradient.bias_O is not None
                gradients.append(part.given_back(gradient.bias_O[start:stop]))
            start = stop
        return [norm_I.mul_(self.norm.numel() ** 0.5), *gradients]


class FoldedRows:
    """A linear layer in a folded matrix: in which order its rows stand there, and scaled by what."""

    def __init__(self, layer: Linear, pairs: int = 0, scale: float = 1.0) -> None:
        self.layer, self.scale = layer, scale
        # Rows of rotary pairs (i, i + pairs/2) of every head of `pairs` entries become adjacent.
        self.order = _pair_order(layer, pairs) if pairs else None

    def taken(self, tensor: Tensor) -> Tensor:
        if self.order is not None:
            tensor = tensor[self.order.forwards]
        return tensor if self.scale == 1.0 else tensor * self.scale

    def given_back(self, tensor: Tensor) -> Tensor:
        if self.order is not None:
            tensor = tensor[self.order.backwards]
        return tensor if self.scale == 1.0 else tensor * self.scale


@dataclass(frozen=True)
class RowOrder:
    """A reordering of rows and its inverse."""

    forwards: Tensor
    backwards: Tensor


def _pair_order(layer: Linear, head_dim: int) -> RowOrder:
    rows, device = layer.weight.shape[0], layer.weight.device
    forwards = torch.arange(rows, device=device).view(-1, 2, head_dim // 2).transpose(1, 2).flatten()
    return RowOrder(forwards, forwards.argsort())


@dataclass(frozen=True)
class LayerProjections:
    """The four matrices of a decoder layer."""

    qkv: Projections
    o: Projections
    gate_up: Projections
    down: Projections

    @classmethod
    def of(cls, layer: Layer, head_dim: int) -> LayerProjections:
        q, k, v = FoldedRows(layer.q, head_dim, head_dim**-0.5), FoldedRows(layer.k, head_dim), FoldedRows(layer.v)
        return cls(
            Projections(layer.attention_norm, [q, k, v]),
            Projections(None, [FoldedRows(layer.o)]),
            Projections(layer.mlp_norm, [FoldedRows(layer.gate), FoldedRows(layer.up)]),
            Projections(None, [FoldedRows(layer.down)]),
        )

    @property
    def all(self) -> list[Projections]:
        return [self.qkv, self.o, self.gate_up, self.down]


@dataclass(frozen=True)
class FoldedLayer:
    """The same four, folded."""

    qkv: Folded
    o: Folded
    gate_up: Folded
    down: Folded

    @property
    def all(self) -> list[Folded]:
        return [self.qkv, self.o, self.gate_up, self.down]


class FoldedBase:
    """A trunk's own weights, folded again only when one has changed; one for all trunks that share them."""

    def __init__(self, layers: list[LayerProjections]) -> None:
        self.layers = layers
        self.parameters = [p for layer in layers for part in layer.all for p in part.parameters]
        self.packs = sum(p.numel() for p in self.parameters) < MOST_WEIGHTS
        self._made_from: list[tuple[int, int]] = []
        self._folded: list[FoldedLayer] = []
        self._folding = threading.Lock()

    def current(self) -> list[FoldedLayer]:
        with self._folding:
            state = _state(self.parameters)
            if state != self._made_from:
                self._folded = [FoldedLayer(*(part.fold(self.packs) for part in layer.all)) for layer in self.layers]
                self._made_from = state
            return self._folded


# By the identities of their weights, which a base keeps alive as long as it is here itself.
_BASES: WeakValueDictionary[tuple[int, ...], FoldedBase] = WeakValueDictionary()


def _base_of(layers: list[LayerProjections]) -> FoldedBase:
    base = FoldedBase(layers)
    return _BASES.setdefault(tuple(id(p) for p in base.parameters), base)


def _state(parameters: Sequence[Tensor]) -> list[tuple[int, int]]:
    return [(p.data_ptr(), p._version) for p in parameters]


class FoldedWeights:
    """A trunk's folded weights: the base's, and the trunk's own adapters beside them."""

    def __init__(self, architecture: Architecture) -> None:
        self.layers = [LayerProjections.of(layer, architecture.head_dim) for layer in architecture.layers]
        self.base = _base_of(self.layers)
        self.adapters = [p for layer in self.layers for part in layer.all for p in part.low_parameters]
        self.parameters = [
            p for layer in self.layers for part in layer.all for p in (*part.parameters, *part.low_parameters)
        ]
        self._made_from: list[tuple[int, int]] = []
        self._low: list[list[FoldedLow | None]] = []

    def current(self) -> list[FoldedLayer]:
        base = self.base.current()
        if not self.adapters:
            return base
        state = _state(self.adapters)
        if state != self._made_from:
            self._low = [[part.fold_low() for part in layer.all] for layer in self.layers]
            self._made_from = state
        return [
            FoldedLayer(*(Folded(f.products, f.bias_O, None, low) for f, low in zip(layer.all, lows, strict=True)))
            for layer, lows in zip(base, self._low, strict=True)
        ]

    def for_gradients(self) -> tuple[list[FoldedLayer], Tensor]:
        """Folded weights whose gradients go back to the parameters, and the anchor that makes autograd do it.

        The pass takes the anchor as an input of its first step, so autograd comes to the anchor's own backward last,
        when every matrix has its whole gradient.
        """
        fresh = [
            FoldedLayer(*(_learning(part, f) for part, f in zip(layer.all, folded.all, strict=True)))
            for layer, folded in zip(self.layers, self.current(), strict=True)
        ]
        return fresh, _Unfold.apply(self.layers, fresh, *self.parameters)  # type: ignore[no-untyped-call]


def _learning(part: Projections, folded: Folded) -> Folded:
    """A folded matrix with room for the gradients of what learns in it."""
    learns = any(p.requires_grad for p in part.parameters)
    low = None if folded.low is None else FoldedLow(folded.low.a_RI, folded.low.b_OR, LowGradient())
    return Folded(folded.products, folded.bias_O, Gradient() if learns else None, low)


class _Unfold(Function):
    """Forwards nothing; backwards the gradients of the folded matrices go to the parameters they were made of."""

    @staticmethod
    def forward(ctx: Any, layers: list[LayerProjections], folded: list[FoldedLayer], *parameters: Tensor) -> Tensor:
        ctx.layers, ctx.folded = layers, folded
        return parameters[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        gradients: list[Tensor | None] = []
        for layer, folded in zip(ctx.layers, ctx.folded, strict=True):
            for part, matrix in zip(layer.all, folded.all, strict=True):
                gradients += part.unfold(matrix.gradient)
                gradients += part.unfold_low(matrix.low)
        return (None, None, *gradients)
