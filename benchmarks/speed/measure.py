"""Measuring on a noisy machine: warm-up, turns, medians with quartiles, the matrix-product peak.

Times of two sides are only compared inside one run and turn by turn: the ratio of each turn is taken first, and the
median of those ratios is what counts, so that a slow minute of the machine weighs on both sides alike.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Spread:
    """A median with its quartiles, and how many measurements it stands on."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Quartiles by inclusive interpolation; one value is its own spread."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0], 1)
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high, len(values))

    def __str__(self) -> str:
        return f"{self.median:.3g} [{self.low:.3g}, {self.high:.3g}]"


def seconds(work: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turns(
    sides: Mapping[str, Callable[[], object]], turns: int, warm_up: int = 1, clock: Callable[..., float] = seconds
) -> dict[str, list[float]]:
    """Times of every side, one call each in turn; the order is reversed every other turn."""
    for _ in range(warm_up):
        for work in sides.values():
            work()
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(turns):
        for name in list(sides) if turn % 2 == 0 else list(sides)[::-1]:
            times[name].append(clock(sides[name]))
    return times


def ratios(slow: Sequence[float], fast: Sequence[float]) -> Spread:
    """How many times as fast, turn by turn."""
    return Spread.of([s / f for s, f in zip(slow, fast, strict=True)])


def best_threads(cores: int, use: Callable[[int], object], seconds: Callable[[], float]) -> int:
    """The number of threads that suits somebody else's code better, one or one per core; set when this returns."""
    if cores == 1:
        return 1
    seconds()
    times = {}
    for threads in (1, cores):
        use(threads)
        times[threads] = seconds()
    best = min(times, key=lambda threads: times[threads])
    use(best)
    return best


def matmul_peak(threads: int | None = None, size: int = 1024, repeats: int = 15) -> float:
    """The fp32 matrix-product rate of this process in FLOP/s: the best of some products of square matrices."""
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        a, b = torch.randn(size, size), torch.randn(size, size)
        best = min(seconds(lambda: a @ b) for _ in range(repeats))
    finally:
        torch.set_num_threads(before)
    return 2 * size**3 / best
