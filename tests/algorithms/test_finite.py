"""NaN and infinity are found wherever they are."""

import pytest
import torch

from holdfast.algorithms.finite import all_finite, first_nonfinite


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_one_bad_element_is_found(bad: float) -> None:
    tensor = torch.zeros(3, 4)
    assert all_finite([tensor, torch.arange(3)])
    tensor[2, 3] = bad
    assert not all_finite([torch.zeros(1), tensor])


def test_the_first_bad_tensor_is_named() -> None:
    good, bad = torch.ones(2), torch.tensor([1.0, float("nan")])
    assert first_nonfinite({"loss": good, "values": bad, "scores": bad}) == "values"
    assert first_nonfinite({"loss": good}) is None
    assert first_nonfinite({}) is None
