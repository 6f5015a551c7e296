"""In an audit the answer of an unreliable labeller counts for less, towards a tie."""

import pytest

from holdfast.auditing import damped


@pytest.mark.parametrize(
    ("share", "weight", "outcome"),
    [(1.0, 1.0, 1.0), (0.0, 1.0, 0.0), (1.0, 0.3, 0.65), (0.0, 0.3, 0.35), (0.5, 0.3, 0.5)],
)
def test_an_outcome_as_it_counts(share, weight, outcome):
    assert damped(share, weight) == pytest.approx(outcome)
