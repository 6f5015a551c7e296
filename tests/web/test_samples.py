"""How suspicious an answer looks: its distance from those of the reference, worked out by hand."""

from __future__ import annotations

import pytest

from holdfast.report.data import SampleRow
from holdfast.web.samples import features, suspicions


def row(step: int, response: str, spread: float = 0.2) -> SampleRow:
    return SampleRow(step, step, 0, "prompt", response, True, 0.0, spread)


def test_features_of_an_answer():
    # Four words; the pairs are ab, ba, ab: two different ones of three.
    assert features(row(0, "a b a b", 0.4)) == (4.0, pytest.approx(1 / 3), 0.4)
    assert features(row(0, "")) == (0.0, 0.0, 0.2)


def test_distance_from_the_reference_in_its_own_deviations():
    # Lengths 2 and 6 at the first step: mean 4, deviation 2. No pair repeats (scale 0.05); the spread never varies
    # (mean 0.2, scale 0.05).
    reference = [row(0, "a b"), row(0, "a b c d e f")]
    later = [row(1, "a b c d"), row(1, "a b c d e f g h i j"), row(1, "a b a b"), row(1, "a b c d", spread=0.4)]
    # In the order of the rows: 2/2, 2/2; the usual length; 6/2; a third of the pairs repeats, (1/3)/0.05; 0.2/0.05.
    assert suspicions([*reference, *later]) == pytest.approx([1, 1, 0, 3, 1 / 0.15, 4])
    assert suspicions([]) == []
