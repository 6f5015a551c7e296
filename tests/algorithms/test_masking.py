"""Sums, means and whitening over a mask, against numbers worked out by hand."""

import pytest
import torch

from holdfast.algorithms.masking import masked_mean, masked_sum, masked_whiten

X_BT = torch.tensor([[1.0, 2.0, float("nan")], [6.0, float("inf"), 99.0]])
MASK_BT = torch.tensor([[1, 1, 0], [1, 0, 0]])


def test_sum_and_mean_see_only_the_mask() -> None:
    assert masked_sum(X_BT, MASK_BT).item() == 9.0  # 1 + 2 + 6
    assert masked_mean(X_BT, MASK_BT).item() == 3.0
    assert masked_mean(X_BT, MASK_BT.float()).item() == 3.0
    assert masked_mean(X_BT, MASK_BT.bool()).item() == 3.0


def test_an_empty_mask_has_no_mean_but_a_sum_of_zero() -> None:
    nothing_BT = torch.zeros_like(MASK_BT)
    assert masked_sum(X_BT, nothing_BT).item() == 0.0
    with pytest.raises(ValueError, match="empty"):
        masked_mean(X_BT, nothing_BT)


def test_whiten_uses_the_unbiased_variance() -> None:
    # Values 1, 2, 6: mean 3, squares 4 + 1 + 9 = 14, over n - 1 = 2 gives 7; so -2, -1, 3 over sqrt(7).
    whitened_BT = masked_whiten(X_BT, MASK_BT)
    root = 7**0.5
    torch.testing.assert_close(whitened_BT, torch.tensor([[-2 / root, -1 / root, 0.0], [3 / root, 0.0, 0.0]]))


def test_whiten_can_keep_the_mean() -> None:
    kept_BT = masked_whiten(X_BT, MASK_BT, shift_mean=False)
    shifted_BT = masked_whiten(X_BT, MASK_BT)
    torch.testing.assert_close(kept_BT, (shifted_BT + 3.0) * MASK_BT)


def test_whiten_refuses_a_single_token_whose_variance_is_not_defined() -> None:
    with pytest.raises(ValueError, match="at least two"):
        masked_whiten(X_BT, torch.tensor([[1, 0, 0], [0, 0, 0]]))


def test_whiten_of_equal_values_is_zero() -> None:
    assert masked_whiten(torch.full((2, 3), 4.0), torch.ones(2, 3)).abs().max().item() == 0.0
