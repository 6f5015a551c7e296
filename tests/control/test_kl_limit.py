"""The hard KL limit."""

import math

import pytest

from holdfast.control.limit import KLLimit
from holdfast.errors import HoldfastError


def test_the_limit_itself_is_still_allowed() -> None:
    limit = KLLimit(hard=10.0)
    assert not limit.exceeded(9.99)
    assert not limit.exceeded(10.0)
    assert limit.exceeded(10.01)
    assert limit.exceeded(math.inf)


def test_no_limit() -> None:
    assert not KLLimit(hard=None).exceeded(1e9)


def test_a_kl_that_is_not_a_number_does_not_pass_silently() -> None:
    with pytest.raises(ValueError, match="not a number"):
        KLLimit(hard=10.0).exceeded(math.nan)


@pytest.mark.parametrize("hard", [0.0, -1.0, math.nan])
def test_a_limit_that_cannot_be_kept_is_refused(hard: float) -> None:
    with pytest.raises(HoldfastError, match="above 0"):
        KLLimit(hard=hard)
