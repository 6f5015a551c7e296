"""When gold counts as fallen."""

import pytest

from holdfast.lab.fall import kept_its_peak, onset


@pytest.mark.parametrize(
    ("heldout", "began"),
    [
        ([0.0, 0.5, 1.0], None),
        ([0.0, 1.0, 0.95, 0.91], None),  # within a tenth of the rise
        ([0.0, 1.0, 0.95, 0.89], 3),
        ([0.0, 1.0, 0.5, 0.2, 0.0], 2),
        ([0.0, 1.0, 0.5, 1.0, 0.5], 4),  # the first dip recovered
        ([0.0, 1.0, 0.5, 0.5, 1.0], None),  # two rounds: over before the second round after it began
        ([0.0, 1.0, 0.5, 0.5, 0.5, 1.0], 2),  # it lasted, whatever came later
        ([0.0, 1.0, 0.5, 1.0, 0.5, 0.5, 0.5, 1.0, 1.0], 4),
        ([0.0, 1.0, 0.5, 0.5, 0.5, 1.0, 0.5], 2),  # the first that lasts, not the last
        ([0.0, 0.5, 0.6, 0.4, 1.0], None),
        ([0.0, -0.005, -0.009], None),  # never rose: a fall has to be more than a hundredth
        ([0.0, -0.2, -0.4], 1),
        ([0.1, 0.5, 0.45], 2),  # a rise of .4: .05 is more than a tenth of it
    ],
)
def test_the_onset_is_where_a_fall_that_lasts_begins(heldout: list[float], began: int | None) -> None:
    assert onset(heldout) == began


def test_a_run_keeps_its_peak_within_a_tenth_of_the_rise() -> None:
    assert kept_its_peak(0.0, 1.0, 0.9)
    assert not kept_its_peak(0.0, 1.0, 0.89)
    assert kept_its_peak(0.0, 0.6, 0.6)
