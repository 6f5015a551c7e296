"""Gradients add up over micro-batches to what one pass gives, one after the other or side by side."""

from __future__ import annotations

import weakref

import pytest
import torch

from holdfast.models.gradients import accumulate
from holdfast.parallel.cores import CORES


@pytest.mark.parametrize("workers", [1, 2])
def test_parts_add_up_to_the_whole(workers: int) -> None:
    weight = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    rows = torch.arange(12.0).view(4, 3)
    CORES.set_workers(workers)
    try:
        told = accumulate([weight], [rows[:1], rows[1:3], rows[3:]], lambda part: ((part @ weight).sum(), len(part)))
    finally:
        CORES.set_workers(1)
    assert told == [1, 2, 1]
    assert weight.grad is not None
    assert weight.grad.tolist() == [18.0, 22.0, 26.0]  # the column sums of 0..11 in rows of three


def test_one_after_the_other_keeps_one_batch_of_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.zeros(1000, requires_grad=True)
    alive: list[weakref.ref[torch.Tensor]] = []
    most = 0
    real = torch.autograd.grad

    def counted(*args: object, **kwargs: object) -> tuple[torch.Tensor, ...]:
        nonlocal most
        found: tuple[torch.Tensor, ...] = real(*args, **kwargs)  # type: ignore[arg-type]
        alive.extend(weakref.ref(gradient) for gradient in found)
        most = max(most, sum(ref() is not None for ref in alive))
        return found

    monkeypatch.setattr(torch.autograd, "grad", counted)
    accumulate([weight], list(range(1, 7)), lambda n: ((n * weight).sum(), None))
    assert most <= 3  # what has added up, this batch's, and perhaps the one before it
