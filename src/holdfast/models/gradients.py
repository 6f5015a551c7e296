"""Gradients of several micro-batches, worked out side by side and added up in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from holdfast.cores import CORES

Batch = TypeVar("Batch")
Told = TypeVar("Told")


def accumulate(
    parameters: Sequence[Tensor], batches: Sequence[Batch], loss: Callable[[Batch], tuple[Tensor, Told]]
) -> list[Told]:
    """Add the gradient of every batch's loss to the parameters; returns what `loss` told besides."""

    def differentiate(batch: Batch) -> tuple[Sequence[Tensor | None], Told]:
        value, told = loss(batch)
        return torch.autograd.grad(value, parameters, allow_unused=True), told

    parts = CORES.share([partial(differentiate, batch) for batch in batches])
    # In the order of the batches, whichever was done first: floating-point sums depend on it.
    for gradients, _ in parts:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
    return [told for _, told in parts]
