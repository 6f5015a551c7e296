"""Looking for NaN and infinity before they reach an optimiser."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether every element of every tensor is a finite number; true of no tensors at all."""
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)


def first_nonfinite(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of the first tensor, in the mapping's order, that holds a NaN or an infinity."""
    return next((name for name, tensor in tensors.items() if not all_finite([tensor])), None)
