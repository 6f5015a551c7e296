"""When a noisy curve counts as settled."""

import json
import math
import random

import pytest

from holdfast.control.plateau import Plateau


def _fed(values: list[float], window: int, tolerance: float = 1.0) -> Plateau:
    plateau = Plateau(window, tolerance)
    for value in values:
        plateau.add(value)
    return plateau


def test_the_statistic_by_hand() -> None:
    # Old 0, 2: mean 1, variance 2. New 0, 6: mean 3, variance 18. se = sqrt((2 + 18) / 2) = 3.1623; rise 2.
    values = [0.0, 2.0, 0.0, 6.0]
    assert _fed(values, window=2, tolerance=0.64).settled  # 0.64 * 3.1623 = 2.024
    assert not _fed(values, window=2, tolerance=0.63).settled  # 0.63 * 3.1623 = 1.992


def test_it_needs_two_full_windows() -> None:
    plateau = _fed([1.0] * 9, window=5)
    assert not plateau.settled
    plateau.add(1.0)
    assert plateau.settled


def test_only_the_last_two_windows_count() -> None:
    assert _fed([0.0, 5.0, 10.0, 15.0, 20.0, 20.0, 20.0, 20.0], window=2).settled
    assert not _fed([9.0, 9.0, 9.0, 9.0, 0.0, 5.0, 10.0, 15.0], window=2).settled


def test_a_falling_curve_has_settled_and_a_rising_one_has_not() -> None:
    assert _fed([float(-i) for i in range(20)], window=10).settled
    assert not _fed([float(i) for i in range(20)], window=10).settled


def test_rates_on_noise() -> None:
    # Flat noise settles at about P(z < 1) = 84% of looks; a rise of 3 se per window at about P(z < -2) = 2%.
    generator = random.Random(0)
    window, looks = 20, 400
    slope = 3 * math.sqrt(2 / window) / window
    flat = sum(_fed([generator.gauss(0, 1) for _ in range(2 * window)], window).settled for _ in range(looks))
    rising = sum(
        _fed([slope * i + generator.gauss(0, 1) for i in range(2 * window)], window).settled for _ in range(looks)
    )
    assert 0.78 < flat / looks < 0.90
    assert rising / looks < 0.06


def test_reset_forgets() -> None:
    plateau = _fed([1.0] * 4, window=2)
    plateau.reset()
    assert not plateau.settled
    assert plateau.state() == Plateau(2).state()


def test_state_round_trip_is_exact() -> None:
    plateau = _fed([0.1 * i + 1 / 3 for i in range(7)], window=3)
    restored = Plateau(3)
    restored.restore(json.loads(json.dumps(plateau.state())))
    assert restored.state() == plateau.state()
    for value in (0.5, 0.1, 0.4):
        plateau.add(value)
        restored.add(value)
        assert restored.settled == plateau.settled


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="drop the step"):
        Plateau(3).add(math.nan)
