"""Many p-values as one, and the signals that carry it."""

from __future__ import annotations

import math

import pytest
import torch

from holdfast.guard.baseline import Deviation
from holdfast.guard.signal import Usual
from holdfast.guard.signals import SIGNALS
from holdfast.guard.suspicion import suspicion_of
from holdfast.statistics import combined_p


def deviation(p: float, value: float = 84.0, usual: float = 40.0) -> Deviation:
    return Deviation(value, Usual(usual, True), z=3.0, p=p)


def test_by_hand() -> None:
    assert combined_p([0.01, 0.5]) == pytest.approx(0.5 - math.atan(math.tan(0.49 * math.pi) / 2) / math.pi)
    assert combined_p([0.25, 0.5, 0.5]) == pytest.approx(0.5 - math.atan(1 / 3) / math.pi)
    assert combined_p([0.001] * 5) == pytest.approx(0.001)
    assert combined_p([]) == 1.0


def test_a_signal_on_its_good_side_does_not_speak_for_another() -> None:
    assert combined_p([1e-4, 1.0, 1.0, 1.0]) == combined_p([1e-4, 0.5, 0.5, 0.5])
    assert combined_p([1.0, 1.0]) == 0.5


def test_nothing_overflows() -> None:
    assert 0.0 < combined_p([0.0, 0.5]) < 1e-12


@pytest.mark.parametrize("dependence", [0.0, 0.3, 0.6, 0.9, 0.99])
def test_it_keeps_its_level_however_the_signals_depend_on_each_other(dependence: float) -> None:
    rng = torch.Generator().manual_seed(int(100 * dependence))
    runs, signals = 20000, 22
    shared = torch.randn(runs, 1, generator=rng)
    own = torch.randn(runs, signals, generator=rng)
    z = math.sqrt(dependence) * shared + math.sqrt(1 - dependence) * own
    p_values = (0.5 * torch.erfc(z.double() / math.sqrt(2.0))).tolist()
    share = sum(combined_p(row) < 0.01 for row in p_values) / runs
    assert 0.008 <= share <= 0.015


def test_the_signals_that_carry_it_come_first_and_no_others() -> None:
    deviations = {
        "entropy": deviation(0.4),
        "length": deviation(1e-6),
        "compression": deviation(0.3),
        "repeated_trigrams": deviation(1e-4, 0.31, 0.02),
        "similarity": deviation(0.9),
    }
    found = suspicion_of(SIGNALS, deviations, level=0.01)
    assert found.suspicious
    assert [telling.name for telling in found.telling] == ["length", "repeated_trigrams"]
    assert found.words() == [
        "answers are 2.1x longer than the reference's",
        "31% of an answer's runs of 3 tokens repeat against 2.0% for the reference",
    ]
    assert found.p_values[0] == ("length", 1e-6)


@pytest.mark.parametrize("level", [0.6, 1.0])
def test_who_wants_every_round_suspicious_has_it_so(level: float) -> None:
    found = suspicion_of(SIGNALS, {"length": deviation(0.7), "entropy": deviation(0.4)}, level)
    assert found.suspicious
    assert [telling.name for telling in found.telling] == ["entropy", "length"]


def test_one_story_is_told_once() -> None:
    deviations = {
        name: deviation(1e-5) for name in ("repeated_trigrams", "repeated_spans", "compression", "prompt_copying")
    }
    found = suspicion_of(SIGNALS, deviations, level=0.01)
    assert len(found.telling) == 4
    assert len(found.words(3)) == 2


def test_nothing_unusual_carries_nothing() -> None:
    found = suspicion_of(SIGNALS, {"length": deviation(0.2), "entropy": deviation(0.7)}, level=0.01)
    assert not found.suspicious
    assert found.telling == ()
    assert suspicion_of(SIGNALS, {}, level=0.01).p == 1.0
