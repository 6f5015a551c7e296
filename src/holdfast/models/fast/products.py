"""Products of many rows with one weight matrix, forwards x W^T and backwards dy W.

torch leaves products of float32 matrices to MKL. Where the same weights meet one batch after the other, oneDNN with
weights that were packed beforehand is quicker: by a tenth for thousands of rows, a fifth for a vocabulary, and three
times for the few rows that are left at the end of decoding. torch has them for its compiler; where a build of torch has
them not, and for what is too small to be worth a call, it is MKL as ever.

Shapes: S rows, I inputs, O outputs.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor

# Below these a call costs more than it gains.
LEAST_SIDE, LEAST_WORK = 128, 1 << 22
# Weights of a model from which on the memory of packed copies counts for more.
MOST_WEIGHTS = 50_000_000
# Rows that weights are packed for. The form is the same for any number of them but very few.
ROWS = 2048


def _kernels() -> Any:
    """torch's own calls of oneDNN, None in a build without them."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return None
    wanted = ("_linear_pointwise", "_reorder_linear_weight")
    return torch.ops.mkldnn if all(hasattr(torch.ops.mkldnn, name) for name in wanted) else None


KERNELS = _kernels()


class Products:
    """A weight matrix that rows are multiplied with; `packs` allows packed copies, one for each direction."""

    def __init__(self, weight_OI: Tensor, packs: bool) -> None:
        self.weight_OI, self.weight_IO = weight_OI, weight_OI.t()
        suits = weight_OI.device.type == "cpu" and weight_OI.dtype == torch.float32
        self.packs = packs and suits and KERNELS is not None and min(weight_OI.shape) >= LEAST_SIDE
        self._packed: dict[str, Tensor] = {}
        self._rows: dict[tuple[int, int], Products] = {}
        self._packing = threading.Lock()

    def times(self, x_SI: Tensor, bias_O: Tensor | None = None) -> Tensor:
        """x W^T, and the bias."""
        if self._pays(x_SI):
            return KERNELS._linear_pointwise.default(x_SI, self._forwards, bias_O, "none", [], "")  # type: ignore[no-any-return]
        return x_SI @ self.weight_IO if bias_O is None else torch.addmm(bias_O, x_SI, self.weight_IO)

    def add_times(self, y_SO: Tensor, x_SI: Tensor) -> Tensor:
        """y + x W^T, in y's memory or in fresh one."""
        if self._pays(x_SI):
            return KERNELS._linear_pointwise.binary(x_SI, y_SO, self._forwards, None, "add")  # type: ignore[no-any-return]
        return y_SO.addmm_(x_SI, self.weight_IO)

    def back(self, dy_SO: Tensor) -> Tensor:
        """dy W."""
        if self._pays(dy_SO):
            return KERNELS._linear_pointwise.default(dy_SO, self._backwards, None, "none", [], "")  # type: ignore[no-any-return]
        return dy_SO @ self.weight_OI

    def rows(self, start: int, stop: int) -> Products:
        """Some of the outputs alone; the same ones are packed once."""
        return self._rows.setdefault((start, stop), Products(self.weight_OI[start:stop], self.packs))

    def _pays(self, rows: Tensor) -> bool:
        return self.packs and rows.shape[0] * self.weight_OI.numel() >= LEAST_WORK

    @property
    def _forwards(self) -> Tensor:
        return self._pack("forwards", self.weight_OI)

    @property
    def _backwards(self) -> Tensor:
        return self._pack("backwards", self.weight_IO)

    def _pack(self, way: str, weight: Tensor) -> Tensor:
        with self._packing:
            if way not in self._packed:
                self._packed[way] = KERNELS._reorder_linear_weight.default(weight, ROWS)
            return self._packed[way]


class ProductsOf:
    """The products of a parameter that learns: made anew when it has changed."""

    def __init__(self, packs: bool) -> None:
        self.packs = packs
        self._made_from: tuple[int, int] | None = None
        self._products: Products | None = None
        self._making = threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> ProductsOf:
        return ProductsOf(self.packs)

    def __call__(self, weight_OI: Tensor) -> Products:
        state = weight_OI.data_ptr(), weight_OI._version
        with self._making:
            if self._products is None or state != self._made_from:
                self._products, self._made_from = Products(weight_OI.detach(), self.packs), state
            return self._products
