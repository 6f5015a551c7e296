"""Weights as the fast path wants them: projections side by side, norms multiplied in, rotary pairs adjacent.

A norm's weight w acts on the columns of the projection that follows it: W (w * x) = (W diag w) x. Folding it in saves
a pass over the tokens, forwards and backwards, for one over the weights. Of V = W diag w and its gradient dV follow
dW = dV diag w and dw = sum over rows of dV * W.

Rotary embeddings turn the pairs (i, i + D/2) of a head. With the rows of the query and key projections reordered so
that a pair is adjacent, the turn is one complex product in place; scores q.k do not depend on the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.graph import increment_version
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from holdfast.models.fast.architecture import Architecture, Layer


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


@dataclass(frozen=True)
class Folded:
    """A matrix made of several projections, with the norm before them multiplied in."""

    weight_OI: Tensor
    bias_O: Tensor | None
    gradient: Gradient

    def __call__(self, x_SI: Tensor) -> Tensor:
        if self.bias_O is None:
            return x_SI @ self.weight_OI.t()
        return torch.addmm(self.bias_O, x_SI, self.weight_OI.t())

    def rows(self, start: int, stop: int) -> Folded:
        """Some of the projections alone."""
        bias_O = None if self.bias_O is None else self.bias_O[start:stop]
        shape = (int(self.weight_OI.shape[0]), int(self.weight_OI.shape[1]))
        return Folded(self.weight_OI[start:stop], bias_O, RowsOfGradient(self.gradient, shape, slice(start, stop)))


class Projections:
    """How some linear layers after one norm become one folded matrix, and how its gradient goes back to them."""

    def __init__(self, norm: Tensor | None, linears: Sequence[nn.Linear], pairs: Sequence[int | None]) -> None:
        self.norm, self.linears = norm, list(linears)
        # For each linear layer: the order of its rows, or None where they stay.
        self.orders = [
            None if dim is None else _pair_order(layer, dim) for layer, dim in zip(linears, pairs, strict=True)
        ]
        self.has_bias = any(layer.bias is not None for layer in linears)

    @property
    def parameters(self) -> list[Tensor]:
        own = [p for layer in self.linears for p in (layer.weight, layer.bias) if p is not None]
        return own if self.norm is None else [self.norm, *own]

    @torch.no_grad()
    def fold(self) -> Folded:
        if self.norm is None and len(self.linears) == 1:
            return Folded(self.linears[0].weight.detach(), None, Gradient())
        weights, biases = [], []
        for layer, order in zip(self.linears, self.orders, strict=True):
            bias_O = layer.bias if layer.bias is not None else layer.weight.new_zeros(layer.weight.shape[0])
            weights.append(layer.weight if order is None else layer.weight[order.forwards])
            biases.append(bias_O if order is None else bias_O[order.forwards])
        weight_OI = torch.cat(weights)
        if self.norm is not None:
            weight_OI.mul_(self.norm)
        return Folded(weight_OI, torch.cat(biases) if self.has_bias else None, Gradient())

    @torch.no_grad()
    def unfold(self, gradient: Gradient) -> list[Tensor | None]:
        """The gradients of `parameters`, in their order."""
        if gradient.weight_OI is None:
            return [None] * len(self.parameters)
        if self.norm is None and len(self.linears) == 1:
            return [gradient.weight_OI]
        found: list[Tensor | None] = []
        norm_I = None if self.norm is None else torch.zeros_like(self.norm)
        start = 0
        for layer, order in zip(self.linears, self.orders, strict=True):
            stop = start + layer.weight.shape[0]
            weight_OI = gradient.weight_OI[start:stop]
            weight_OI = weight_OI if order is None else weight_OI[order.backwards]
            if norm_I is not None and self.norm is not None:
                norm_I += torch.linalg.vecdot(weight_OI, layer.weight, dim=0)
                weight_OI = weight_OI * self.norm
            found.append(weight_OI)
            if layer.bias is not None:
                assert gradient.bias_O is not None
                bias_O = gradient.bias_O[start:stop]
                found.append(bias_O if order is None else bias_O[order.backwards])
            start = stop
        return found if norm_I is None else [norm_I, *found]


@dataclass(frozen=True)
class RowOrder:
    """A reordering of rows and its inverse."""

    forwards: Tensor
    backwards: Tensor


def _pair_order(layer: nn.Linear, head_dim: int) -> RowOrder:
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
        return cls(
            Projections(layer.attention_norm, [layer.q, layer.k, layer.v], [head_dim, head_dim, None]),
            Projections(None, [layer.o], [None]),
            Projections(layer.mlp_norm, [layer.gate, layer.up], [None, None]),
            Projections(None, [layer.down], [None]),
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


class FoldedWeights:
    """A trunk's folded weights, folded again only when a parameter has changed."""

    def __init__(self, architecture: Architecture) -> None:
        self.layers = [LayerProjections.of(layer, architecture.head_dim) for layer in architecture.layers]
        self.parameters = [p for layer in self.layers for part in layer.all for p in part.parameters]
        self._made_from: list[tuple[int, int]] = []
        self._folded: list[FoldedLayer] = []

    def current(self) -> list[FoldedLayer]:
        state = [(p.data_ptr(), p._version) for p in self.parameters]
        if state != self._made_from:
            self._folded = [FoldedLayer(*(part.fold() for part in layer.all)) for layer in self.layers]
            self._made_from = state
        return self._folded

    def for_gradients(self) -> tuple[list[FoldedLayer], Tensor]:
        """Folded weights whose gradients go back to the parameters, and the anchor that makes autograd do it.

        The pass takes the anchor as an input of its first step, so autograd comes to the anchor's own backward last,
        when every matrix has its whole gradient.
        """
        fresh = [
            FoldedLayer(*(Folded(f.weight_OI, f.bias_O, Gradient()) for f in layer.all)) for layer in self.current()
        ]
        return fresh, _Unfold.apply(self.layers, fresh, *self.parameters)  # type: ignore[no-untyped-call]


class _Unfold(Function):
    """Forwards nothing; backwards the gradients of the folded matrices go to the parameters they were made of."""

    @staticmethod
    def forward(ctx: Any, layers: list[LayerProjections], folded: list[FoldedLayer], *parameters: Tensor) -> Tensor:
        ctx.layers, ctx.folded = layers, folded
        return parameters[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        found: list[Tensor | None] = []
        for layer, folded in zip(ctx.layers, ctx.folded, strict=True):
            for part, matrix in zip(layer.all, folded.all, strict=True):
                found += part.unfold(matrix.gradient)
        return (None, None, *found)
