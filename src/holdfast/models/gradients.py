"""Gradients of several micro-batches, worked out side by side and added up in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from holdfast.algorithms.finite import all_finite
from holdfast.models.sharding import is_dealt, plain
from holdfast.parallel.cores import CORES
from holdfast.parallel.processes import PROCESSES

Batch = TypeVar("Batch")
Result = TypeVar("Result")

# Numbers that are added up over the processes in one go.
BUCKET = 1 << 24


def accumulate(
    parameters: Sequence[Tensor], batches: Sequence[Batch], loss: Callable[[Batch], tuple[Tensor, Result]]
) -> list[Result]:
    """Add the gradient of every batch's loss to the parameters; returns what `loss` gave besides.

    In joint work each process takes its share of the batches, and returns what `loss` gave for those; the gradients are
    of all of them in every process.
    """
    if PROCESSES.together and any(is_dealt(parameter) for parameter in parameters):
        return _accumulate_sharded(batches, loss)

    def differentiate(batch: Batch) -> tuple[Sequence[Tensor | None], Result]:
        value, result = loss(batch)
        return torch.autograd.grad(value, parameters, allow_unused=True), result

    results = []
    # In the order of the batches, whichever was done first: floating-point sums depend on it. One core has one batch's
    # gradients at a time; several have as many as there are batches, of a model that is small.
    pieces = [partial(differentiate, batch) for batch in PROCESSES.part(batches)]
    for gradients, result in (piece() for piece in pieces) if CORES.free == 1 else CORES.share(pieces):
        results.append(result)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
    if PROCESSES.together:
        _add_up(parameters)
    return results


# Gradients of more than this norm are clipped to it, in every kind of training, as is usual for transformers: an odd
# batch then moves the weights no further than any other.
GRADIENT_CLIP = 1.0


def clip_and_step(optimiser: torch.optim.Optimizer, error: Exception) -> float:
    """One step of the optimiser along the clipped gradient; returns the norm that the gradient had.

    A bad number may not reach the weights: it is looked for before the optimiser moves, and `error` is raised.
    """
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    norm = plain(torch.nn.utils.clip_grad_norm_(parameters, GRADIENT_CLIP))
    finite = all_finite([norm])
    if finite:
        optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    if not finite:
        raise error
    return float(norm)


def _add_up(parameters: Sequence[Tensor]) -> None:
    """Sum the gradients over the processes; one that no process has stays away."""
    used = torch.tensor([0.0 if p.grad is None else 1.0 for p in parameters])
    PROCESSES.add(used)
    waiting: list[Tensor] = []
    for parameter, count in zip(parameters, used.tolist(), strict=True):
        if count:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            waiting.append(parameter.grad)
        if sum(gradient.numel() for gradient in waiting) >= BUCKET:
            _add_bucket(waiting)
            waiting = []
    _add_bucket(waiting)


def _add_bucket(gradients: Sequence[Tensor]) -> None:
    if not gradients:
        return
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    PROCESSES.add(flat)
    for gradient, summed in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
        gradient.copy_(summed.view_as(gradient))


def _accumulate_sharded(batches: Sequence[Batch], loss: Callable[[Batch], tuple[Tensor, Result]]) -> list[Result]:
    """The same where FSDP holds the weights: it gathers them and sums gradients itself, in every pass.

    So all processes make equally many passes; one that has nothing left to do goes through a batch for nothing.
    """
    mine = PROCESSES.part(batches)
    results = []
    with PROCESSES.watched():
        for turn in range(-(-len(batches) // PROCESSES.world)):
            busy = turn < len(mine)
            value, result = loss(mine[turn] if busy else batches[0])
            # FSDP takes the mean over the processes; what is wanted is the sum.
            (value * (PROCESSES.world if busy else 0.0)).backward()  # type: ignore[no-untyped-call]
            if busy:
                results.append(result)
    return results
