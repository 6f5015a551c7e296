"""Counts what a piece of work costs without looking at the clock: operations, matrix products, memory asked for."""

from __future__ import annotations

from math import prod
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

# Operations that only look at a tensor in another way.
VIEWS = {
    "view", "t", "transpose", "slice", "select", "expand", "detach", "alias", "unsqueeze", "squeeze", "as_strided",
    "split", "unbind", "permute", "view_as_complex", "_unsafe_view", "split_with_sizes", "_conj", "unfold",
}  # fmt: skip


class WorkCounter(TorchDispatchMode):
    """Inside `with`: how many kernels ran, their matrix-product operations, and the bytes of fresh memory."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels = 0
        self.flops = 0
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name not in VIEWS:
            self.kernels += 1
            given = {a.untyped_storage().data_ptr() for a in _tensors((args, kwargs))}
            fresh = [t for t in _tensors(out) if t.untyped_storage().data_ptr() not in given]
            self.bytes += sum(t.numel() * t.element_size() for t in fresh)
        self.flops += _flops(name, args)
        return out


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for item in value for t in _tensors(item)] if isinstance(value, list | tuple) else []


def _flops(name: str, args: Any) -> int:
    if name in ("mm", "bmm"):
        left, right = args[0], args[1]
    elif name in ("addmm", "addmm_", "baddbmm", "baddbmm_"):
        left, right = args[1], args[2]
    else:
        return 0
    return 2 * int(prod(left.shape)) * int(right.shape[-1])
