"""Products with packed weights: torch's own products by another route, and which of the two is taken."""

from __future__ import annotations

import copy

import pytest
import torch

from holdfast.models.fast import products
from holdfast.models.fast.products import Products, ProductsOf

CLOSE: dict[str, float] = {"atol": 2e-4, "rtol": 1e-5}


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("rows", [130, 400])
def test_packed_products_are_the_plain_ones(rows: int) -> None:
    weight_OI, bias_O = numbers(256, 160), numbers(256, seed=1)
    x_SI, y_SO = numbers(rows, 160, seed=2), numbers(rows, 256, seed=3)
    ready = Products(weight_OI, packs=True)
    assert ready._pays(x_SI), "these are large enough to be packed for"
    torch.testing.assert_close(ready.times(x_SI), x_SI @ weight_OI.t(), **CLOSE)
    torch.testing.assert_close(ready.times(x_SI, bias_O), x_SI @ weight_OI.t() + bias_O, **CLOSE)
    torch.testing.assert_close(ready.back(y_SO), y_SO @ weight_OI, **CLOSE)
    torch.testing.assert_close(ready.add_times(y_SO.clone(), x_SI), y_SO + x_SI @ weight_OI.t(), **CLOSE)
    some = ready.rows(32, 192)
    assert some is ready.rows(32, 192), "packed once"
    torch.testing.assert_close(some.times(numbers(400, 160)), numbers(400, 160) @ weight_OI[32:192].t(), **CLOSE)


def test_a_few_rows_of_a_large_matrix() -> None:
    weight_OI, x_SI = numbers(2048, 1024), numbers(3, 1024, seed=1)
    ready = Products(weight_OI, packs=True)
    assert ready._pays(x_SI)
    torch.testing.assert_close(ready.times(x_SI), x_SI @ weight_OI.t(), **CLOSE)


@pytest.mark.parametrize(
    ("shape", "rows", "packs", "dtype"),
    [
        ((96, 512), 4096, True, torch.float32),
        ((256, 256), 8, True, torch.float32),
        ((256, 256), 4096, False, torch.float32),
        ((256, 256), 4096, True, torch.float64),
    ],
    ids=["a narrow matrix", "few rows", "a large model", "other numbers"],
)
def test_what_does_not_pay_is_not_packed(
    shape: tuple[int, int], rows: int, packs: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Products, "_pack", lambda *_: pytest.fail("packed"))
    weight_OI = numbers(*shape).to(dtype)
    x_SI = numbers(rows, shape[1]).to(dtype)
    assert torch.equal(Products(weight_OI, packs).times(x_SI), x_SI @ weight_OI.t())


def test_a_build_of_torch_without_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "KERNELS", None)
    weight_OI, x_SI = numbers(256, 256), numbers(256, 256, seed=1)
    assert torch.equal(Products(weight_OI, packs=True).back(x_SI), x_SI @ weight_OI)


def test_a_parameter_that_moved_is_packed_again() -> None:
    of, weight_OI = ProductsOf(packs=True), torch.nn.Parameter(numbers(256, 256))
    x_SI = numbers(256, 256, seed=1)
    first = of(weight_OI)
    assert of(weight_OI) is first
    first.times(x_SI)
    optimiser = torch.optim.AdamW([weight_OI], lr=0.1, fused=True)
    weight_OI.grad = numbers(256, 256, seed=2)
    optimiser.step()
    torch.testing.assert_close(of(weight_OI).times(x_SI), x_SI @ weight_OI.detach().t(), **CLOSE)
    assert of(weight_OI) is not first


def test_a_copy_begins_with_nothing_packed() -> None:
    of, weight_OI = ProductsOf(packs=True), torch.nn.Parameter(numbers(256, 256))
    of(weight_OI).times(numbers(256, 256))
    torch.testing.assert_close(copy.deepcopy(of)(weight_OI).weight_OI, weight_OI.detach())
