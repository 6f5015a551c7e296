"""How the benchmark of squeezing reads a rise, against numbers worked out by hand."""

from __future__ import annotations

from benchmarks.dynamics.squeezing import rise


def test_each_half_is_read_at_the_peak_of_the_other() -> None:
    # Answers 0 and 2 are one half, highest at the second probe; 1 and 3 the other, highest at the third.
    each = [[0.0, 0.0, 0.0, 0.0], [2.0, 1.0, 4.0, 1.0], [1.0, 3.0, 1.0, 3.0]]
    # So 0 and 2 are read at the third probe, 1 and 1; 1 and 3 at the second, 1 and 1.
    assert rise(each) == (1.0, 0.0)


def test_the_luck_of_a_maximum_is_no_rise() -> None:
    each = [[0.0, 0.0, 0.0, 0.0], [1.0, -1.0, 1.0, -1.0], [-1.0, 1.0, -1.0, 1.0]]
    assert rise(each)[0] == -1.0, "each half peaks where the other is lowest"


def test_what_never_rises_rises_by_nothing() -> None:
    assert rise([[0.0, 0.0], [-1.0, -2.0]]) == (0.0, 0.0)
