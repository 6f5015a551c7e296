"""How sure a result is: means, paired differences and shares, each with an interval; when a run's gold began to fall.

Intervals of means are by the bootstrap over paired seeds, as wide as few seeds ask for, with draws that are always the
same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import torch

from holdfast.randomness import generator

# Two-sided 95% points of Student's t for 1 to 30 degrees of freedom.
T_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
Z_975 = 1.959964
DRAWS = 10_000
BOOTSTRAP_SEED = 20_221_019

# The share of the rise below its peak at which gold counts as fallen, and the least rise that this is taken of: a run
# that never rose has no rise to lose, and a tenth of nothing would be noise.
FALL = 0.1
LEAST_RISE = 0.1
# Rounds from the beginning of a fall to the verdict that are soon enough. A fall that is over by then is a dip.
SOON = 2


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95% interval, from `count` values."""

    mean: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean with its 95% interval by Student's t; needs at least two values."""
    half = t_975(len(values)) * stdev(values) / len(values) ** 0.5
    return fmean(values), fmean(values) - half, fmean(values) + half


def t_975(count: int) -> float:
    """The 97.5% point of Student's t for a mean of so many values."""
    z, freedom = Z_975, count - 1
    if freedom <= len(T_975):
        return T_975[freedom - 1]
    # Beyond the table two terms of the expansion in 1 / freedom are right to 0.001.
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def bootstrap(values: Sequence[float]) -> Estimate:
    """The mean with the 2.5th and 97.5th percentile of the means of resamples, drawn out as far as few values ask for.

    As they are, the percentiles hold the truth in 84% of cases and not in 95% where there are five values: resamples
    vary less than samples do, by sqrt((n - 1) / n), and nobody knows by how much samples vary. Both are in Student's t,
    so the percentiles are drawn out from the mean by t / z * sqrt(n / (n - 1)). One value has no width.
    """
    if not values:
        raise ValueError("a mean of nothing")
    count, mean = len(values), fmean(values)
    if count == 1:
        return Estimate(mean, mean, mean, 1)
    quantiles = torch.quantile(_resampled_means(values), torch.tensor([0.025, 0.975], dtype=torch.float64))
    low, high = (mean + drawn_out(count) * (end - mean) for end in quantiles.tolist())
    return Estimate(mean, low, high, count)


def drawn_out(count: int) -> float:
    """By how much means of resamples have to vary more for so many values, of which there are at least two."""
    return t_975(count) / Z_975 * math.sqrt(count / (count - 1))


def share(hits: int, count: int) -> Estimate:
    """A share with Wilson's 95% interval (Wilson 1927), which is right for few runs and for shares near 0 and 1."""
    if count == 0:
        return Estimate(0.0, 0.0, 1.0, 0)
    p, z2 = hits / count, Z_975**2
    centre = (p + z2 / (2 * count)) / (1 + z2 / count)
    half = Z_975 / (1 + z2 / count) * (p * (1 - p) / count + z2 / (4 * count**2)) ** 0.5
    return Estimate(p, max(0.0, centre - half), min(1.0, centre + half), count)


def chance_of_best(columns: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """For paired columns of equal length: in what share of resamples of the rows each has the highest mean.

    Resamples are drawn out like those of an interval. One row is a resample of itself, always.
    """
    names = list(columns)
    values_NC = torch.tensor([columns[name] for name in names], dtype=torch.float64).T
    rng = generator(BOOTSTRAP_SEED, "chance of best")
    rows_RN = torch.randint(len(values_NC), (DRAWS, len(values_NC)), generator=rng)
    means_RC, centre_C = values_NC[rows_RN].mean(1), values_NC.mean(0)
    if len(values_NC) > 1:
        means_RC = centre_C + drawn_out(len(values_NC)) * (means_RC - centre_C)
    best_R = means_RC.argmax(1)
    return {name: float((best_R == i).double().mean()) for i, name in enumerate(names)}


def onset(heldout: Sequence[float]) -> int | None:
    """The round in which gold begins the first fall that lasts: fallen in `SOON` further rounds, or until the end.

    A shorter one is a dip. Nobody was late to call it, since it mended itself before the time for that was up; and who
    did call it was right about the policy of that round.
    """
    begin = None
    for round, is_down in enumerate(down := fallen(heldout)):
        if not is_down:
            begin = None
        elif begin is None:
            begin = round
        if begin is not None and (round - begin == SOON or round == len(down) - 1):
            return begin
    return None


def fallen(heldout: Sequence[float]) -> list[bool]:
    """For every round, whether gold stands fallen below its peak so far."""
    down, peak = [], heldout[0]
    for value in heldout:
        peak = max(peak, value)
        down.append(value < peak - FALL * max(peak - heldout[0], LEAST_RISE))
    return down


def kept_its_peak(start: float, peak: float, end: float) -> bool:
    """Whether a run ends no more than `FALL` of the rise below the best it had."""
    return end >= peak - FALL * max(peak - start, LEAST_RISE)


def _resampled_means(values: Sequence[float]) -> torch.Tensor:
    values_N = torch.tensor(values, dtype=torch.float64)
    rng = generator(BOOTSTRAP_SEED, "bootstrap", len(values))
    rows_RN = torch.randint(len(values), (DRAWS, len(values)), generator=rng)
    return values_N[rows_RN].mean(1)
