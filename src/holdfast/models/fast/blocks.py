"""The steps of a packed pass with gradients written by hand: fewer passes over memory, matrices added up in place.

Shapes: S tokens, N read-outs, I inputs, O outputs, F feed-forward, V vocabulary; R rows, Q queries and T keys of a row,
G query heads of a key-value head, D of a head.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from holdfast.models.fast.fold import Folded
from holdfast.models.fast.products import Products
from holdfast.models.token_sets import TokenSets

# Numbers of a matrix that are worked on together, so that they are still near when they are read again.
CACHED = 1 << 22


def length(x_SI: Tensor, floor: Tensor) -> Tensor:
    """sqrt(|x|^2 + floor^2), with floor^2 = I eps: what an RMS norm divides by, up to the sqrt(I) in the weights."""
    norm_S1: Tensor = torch.linalg.vector_norm(x_SI, dim=-1, keepdim=True)
    return norm_S1.hypot_(floor)


def through_unit(du_SI: Tensor, unit_SI: Tensor, length_S1: Tensor) -> Tensor:
    """The gradient of x through unit = x / length(x), into `du`'s memory: (du - u (u . du)) / length."""
    along_S1 = torch.linalg.vecdot(du_SI, unit_SI)[:, None]
    return du_SI.addcmul_(unit_SI, along_S1, value=-1).div_(length_S1)


class Embed(Function):
    """Rows of the embedding; takes the anchor of the folded weights along (see `FoldedWeights.for_gradients`)."""

    @staticmethod
    def forward(ctx: Any, weight_VI: Tensor, ids_S: Tensor, padding: int | None, anchor: Tensor) -> Tensor:
        ctx.save_for_backward(ids_S)
        ctx.shape, ctx.padding = weight_VI.shape, padding
        return weight_VI.index_select(0, ids_S)

    @staticmethod
    def backward(ctx: Any, dx_SI: Tensor) -> tuple[Tensor | None, None, None, Tensor]:
        (ids_S,) = ctx.saved_tensors
        grad = None
        if ctx.needs_input_grad[0]:
            grad = dx_SI.new_zeros(ctx.shape).index_add_(0, ids_S, dx_SI)
            if ctx.padding is not None:
                grad[ctx.padding].zero_()
        return grad, None, None, dx_SI.new_zeros(())


class NormLinear(Function):
    """y = V (x / length(x)), with V the folded matrix."""

    @staticmethod
    def forward(ctx: Any, x_SI: Tensor, matrix: Folded, floor: Tensor) -> Tensor:
        length_S1 = length(x_SI, floor)
        unit_SI = x_SI / length_S1
        ctx.matrix = matrix
        ctx.save_for_backward(unit_SI, length_S1)
        return matrix(unit_SI)

    @staticmethod
    def backward(ctx: Any, dy_SO: Tensor) -> tuple[Tensor, None, None]:
        unit_SI, length_S1 = ctx.saved_tensors
        return through_unit(ctx.matrix.back(dy_SO, unit_SI), unit_SI, length_S1), None, None


class AddLinear(Function):
    """x + W a, into x's memory where that is quickest: nothing else needs the residual stream of before."""

    @staticmethod
    def forward(ctx: Any, x_SO: Tensor, a_SI: Tensor, matrix: Folded) -> Tensor:
        ctx.matrix = matrix
        ctx.save_for_backward(a_SI)
        sum_SO = matrix.add_to(x_SO, a_SI)
        if sum_SO is x_SO:
            ctx.mark_dirty(x_SO)
        return sum_SO

    @staticmethod
    def backward(ctx: Any, dx_SO: Tensor) -> tuple[Tensor, Tensor, None]:
        (a_SI,) = ctx.saved_tensors
        return dx_SO, ctx.matrix.back(dx_SO, a_SI), None


class GatedUnit(Function):
    """silu(gate) * up of [gate, up] side by side."""

    @staticmethod
    def forward(ctx: Any, both_SF: Tensor) -> Tensor:
        gate_SF, up_SF = both_SF.chunk(2, -1)
        open_SF = functional.silu(gate_SF)
        ctx.save_for_backward(both_SF, open_SF)
        return open_SF * up_SF

    @staticmethod
    def backward(ctx: Any, dy_SF: Tensor) -> Tensor:
        both_SF, open_SF = ctx.saved_tensors
        gate_SF, up_SF = both_SF.chunk(2, -1)
        d_SF = torch.empty_like(both_SF)
        dgate_SF, dup_SF = d_SF.chunk(2, -1)
        torch.mul(dy_SF, open_SF, out=dup_SF)
        torch.ops.aten.silu_backward.grad_input(dy_SF * up_SF, gate_SF, grad_input=dgate_SF)
        return d_SF


class Norm(Function):
    """sqrt(I) w * x / length(x): the trunk's last norm, whose result everyone reads."""

    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, weight_I: Tensor, floor: Tensor) -> Tensor:
        length_N1 = length(x_NI, floor)
        unit_NI = x_NI / length_N1
        ctx.save_for_backward(unit_NI, length_N1, weight_I)
        return unit_NI.mul(weight_I * weight_I.numel() ** 0.5)

    @staticmethod
    def backward(ctx: Any, dy_NI: Tensor) -> tuple[Tensor, Tensor, None]:
        unit_NI, length_N1, weight_I = ctx.saved_tensors
        root = weight_I.numel() ** 0.5
        dweight_I = torch.linalg.vecdot(dy_NI, unit_NI, dim=0) * root
        return through_unit(dy_NI * (weight_I * root), unit_NI, length_N1), dweight_I, None


class Again(Function):
    """A step that keeps only what goes into it, and is done once more when its gradient is asked for."""

    @staticmethod
    def forward(ctx: Any, x_SI: Tensor, step: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.step = step
        ctx.save_for_backward(x_SI)
        # The step works in its input's memory, which is needed again.
        return step(x_SI.clone())

    @staticmethod
    def backward(ctx: Any, dy_SI: Tensor) -> tuple[Tensor, None]:
        with torch.enable_grad():
            x_SI = ctx.saved_tensors[0].detach().requires_grad_()
            (dx_SI,) = torch.autograd.grad(ctx.step(x_SI.clone()), x_SI, dy_SI)
        return dx_SI, None


class TokenLogProbs(Function):
    """log softmax(W h / temperature) at the targets, with one matrix of vocabulary size alive instead of four.

    Where there are sets, softmax is over each position's own: what is left out has no power, and so no gradient.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NI: Tensor,
        weight_VI: Tensor,
        head: Products,
        target_N: Tensor,
        temperature: float,
        learns: bool,
        sets: TokenSets | None,
        truncated: bool,
    ) -> Tensor:
        total_N, picked_N = hidden_NI.new_empty(2, hidden_NI.shape[0])
        powers = []
        for rows in _slices(hidden_NI, weight_VI):
            scores_NV = head.times(hidden_NI[rows])
            if temperature != 1.0:
                scores_NV.div_(temperature)
            if sets is not None:
                sets.restrict(scores_NV, truncated, rows)
            scores_NV.sub_(scores_NV.amax(-1, keepdim=True))
            picked_N[rows] = scores_NV.gather(-1, target_N[rows, None]).squeeze(-1)
            torch.sum(scores_NV.exp_(), -1, out=total_N[rows])
            if learns:
                powers.append(scores_NV)
        ctx.head, ctx.temperature = head, temperature
        ctx.save_for_backward(hidden_NI, weight_VI, target_N, total_N, *powers)
        return torch.sub(picked_N, total_N.log())

    @staticmethod
    def backward(ctx: Any, d_N: Tensor) -> tuple[Tensor | None, ...]:
        hidden_NI, weight_VI, target_N, total_N, *powers = ctx.saved_tensors
        d_N = d_N / ctx.temperature
        dhidden_NI = torch.empty_like(hidden_NI)
        dweight_VI = torch.zeros_like(weight_VI) if ctx.needs_input_grad[1] else None
        for rows, powers_NV in zip(_slices(hidden_NI, weight_VI), powers, strict=True):
            # Into the memory of the forward pass: nothing reads it again.
            d_NV = powers_NV.mul_((-d_N[rows] / total_N[rows])[:, None])
            d_NV.scatter_add_(-1, target_N[rows, None], d_N[rows, None])
            dhidden_NI[rows] = ctx.head.back(d_NV)
            if dweight_VI is not None:
                dweight_VI.addmm_(d_NV.t(), hidden_NI[rows])
        return dhidden_NI, dweight_VI, None, None, None, None, None, None


def _slices(hidden_NI: Tensor, weight_VI: Tensor) -> list[slice]:
    """Rows whose scores fit the caches together, on a CPU."""
    rows = hidden_NI.shape[0]
    size = max(64, CACHED // weight_VI.shape[0]) if hidden_NI.device.type == "cpu" else rows
    return [slice(start, start + size) for start in range(0, rows, size)]
