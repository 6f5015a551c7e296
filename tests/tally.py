"""What the tests have tried on the system: kills, failed writes, damage, attacks.

Counted where it is done and attached to the test that did it, so that `python -m benchmarks faults` can add it up.
"""

from __future__ import annotations

from collections import Counter

_tried: Counter[str] = Counter()


def count(what: str, times: int = 1) -> None:
    if times:
        _tried[what] += times


def taken() -> dict[str, int]:
    """What has been counted since the last time."""
    counted = dict(_tried)
    _tried.clear()
    return counted
