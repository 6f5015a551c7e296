"""Tails, quantiles and intervals, each in one place; nothing here is about answers or policies.

    log_incomplete_beta -> student_tail, student_quantile, binomial_tail, and the evidence of the sequential test
    wilson, mean_interval, bootstrap, share_of, chance_of_best -> intervals at 95%
    Share -> how a share is said: with its count, and with its interval where that is small

The incomplete beta function is our own because its logarithm is needed: the evidence of a long run leaves the range of
a float, where scipy's is 0. With it the others are a line each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, fmean, stdev
from typing import TYPE_CHECKING

from holdfast.text import counted, percent

if TYPE_CHECKING:
    from torch import Tensor

# --- distributions ----------------------------------------------------------------------------------------------

_LEAST = 1e-300
_PRECISION = 1e-15
_TERMS = 10_000


def log_beta(a: float, b: float) -> float:
    """log B(a, b) = log Gamma(a) + log Gamma(b) - log Gamma(a + b)."""
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def log_incomplete_beta(x: float, a: float, b: float) -> float:
    """log I_x(a, b), the share of a Beta(a, b) distribution that lies below x.

    By the continued fraction 8.17.22 of the NIST Handbook of Mathematical Functions, which converges fast for
    x < (a + 1) / (a + b + 2); beyond it I_x(a, b) = 1 - I_{1-x}(b, a), which is not small there.
    """
    if a <= 0 or b <= 0:
        raise ValueError(f"A Beta({a}, {b}) distribution does not exist; both numbers have to be above 0.")
    if x <= 0.0:
        return -math.inf
    if x >= 1.0:
        return 0.0
    if x <= (a + 1.0) / (a + b + 2.0):
        return _log_by_fraction(x, a, b)
    return math.log1p(-math.exp(_log_by_fraction(1.0 - x, b, a)))


def incomplete_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b)."""
    return math.exp(log_incomplete_beta(x, a, b))


def _log_by_fraction(x: float, a: float, b: float) -> float:
    front = a * math.log(x) + b * math.log1p(-x) - log_beta(a, b) - math.log(a)
    return front + math.log(_fraction(x, a, b))


def _fraction(x: float, a: float, b: float) -> float:
    """1 / (1 + d1 / (1 + d2 / (1 + ...))) by the method of Lentz."""
    c, d = 1.0, 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 / _away_from_zero(1.0 + term * d)
            c = _away_from_zero(1.0 + term / c)
            value *= c * d
        if abs(c * d - 1.0) < _PRECISION:
            break
    return value


def _away_from_zero(x: float) -> float:
    return x if abs(x) > _LEAST else _LEAST


def student_tail(t: float, freedom: float) -> float:
    """P(T > t) for Student's t: half of I_{n / (n + t^2)}(n / 2, 1 / 2) for t >= 0."""
    half = 0.5 * incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5)
    return half if t >= 0 else 1.0 - half


@lru_cache(maxsize=4096)
def student_quantile(tail: float, freedom: float) -> float:
    """The t with P(T > t) = tail, for a tail below 1/2; by bisection."""
    low, high = 0.0, 1.0
    while student_tail(high, freedom) > tail:
        low, high = high, 2.0 * high
    for _ in range(100):
        middle = (low + high) / 2.0
        if student_tail(middle, freedom) > tail:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def binomial_tail(k: int, n: int, p: float) -> float:
    """P(X >= k) of n draws with probability p: I_p(k, n - k + 1)."""
    if k <= 0:
        return 1.0
    return incomplete_beta(p, k, n - k + 1) if k <= n else 0.0


def normal_tail(z: float) -> float:
    """P(Z > z) for a standard normal."""
    return 0.5 * math.erfc(z / math.sqrt(2.0))


def normal_quantile(tail: float) -> float:
    """The z with P(Z > z) = tail."""
    return NormalDist().inv_cdf(1.0 - tail)


# Tangents of p-values nearer to 0 are not numbers any more.
_LEAST_P = 1e-15


def combined_p(p_values: Sequence[float]) -> float:
    """The Cauchy combination of p-values (Liu & Xie 2020): its level nearly holds however they depend on each other.

    T = mean of tan((1/2 - p) pi), p = 1/2 - arctan(T) / pi, for small p. Here p-values above 1/2 count as 1/2, so that
    a test that is passed easily does not speak for one that is not; the tail of T stays that of a Cauchy variable. In
    simulation the level 0.01 is 0.011 for 22 independent p-values, and at most 0.013 for dependent ones.
    """
    if not p_values:
        return 1.0
    tangents = [math.tan((0.5 - min(0.5, max(_LEAST_P, p))) * math.pi) for p in p_values]
    return 0.5 - math.atan(math.fsum(tangents) / len(tangents)) / math.pi


# --- intervals at 95% -------------------------------------------------------------------------------------------

TAIL = 0.025
Z = 1.959963984540054
DRAWS = 10_000
BOOTSTRAP_SEED = 20_221_019


@dataclass(frozen=True)
class Interval:
    """A share or a mean with its 95% interval."""

    value: float
    low: float
    high: float

    def within(self, least: float, most: float) -> Interval:
        """The same where nothing below `least` or above `most` is possible."""
        return Interval(self.value, max(least, self.low), min(most, self.high))


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95% interval, from `count` values."""

    mean: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def wilson(wins: float, pairs: float) -> Interval:
    """A share with Wilson's score interval (Wilson 1927), which stays within 0 and 1 and holds for few pairs."""
    share = wins / pairs
    centre = (share + Z * Z / (2 * pairs)) / (1 + Z * Z / pairs)
    half = Z / (1 + Z * Z / pairs) * math.sqrt(share * (1 - share) / pairs + Z * Z / (4 * pairs * pairs))
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half))


# Of so many the interval of a share is some 10 points to either side at most, and the count tells enough.
MANY = 100


@dataclass(frozen=True)
class Share:
    """A share of a count, a tie as half; said with its count, and with Wilson's interval where that is small."""

    value: float
    count: int

    @property
    def interval(self) -> str:
        """ "9% to 91%"."""
        if not self.count:
            return "0% to 100%"
        known = wilson(self.value * self.count, self.count)
        return f"{percent(known.low)} to {percent(known.high)}"

    @property
    def note(self) -> str:
        """What stands small beside the percentage in a table: "of 2, 9% to 91%", or "of 240"."""
        return f"of {self.count:,}" + (f", {self.interval}" if self.count < MANY else "")

    def of(self, noun: str, several: str = "") -> str:
        """ "1 of 2 labels (9% to 91%)" of few, "58% of 240 labels" of many."""
        hits, counted_nouns = float(round(self.value * self.count, 3)), counted(self.count, noun, several)
        if not self.count:
            return counted_nouns
        if self.count >= MANY:
            return f"{percent(self.value)} of {counted_nouns}"
        # A mean over several members or weighted answers is no number of hits.
        share = f"{hits:g}" if (2 * hits).is_integer() else percent(self.value)
        return f"{share} of {counted_nouns} ({self.interval})"


def share_of(hits: int, count: int) -> Estimate:
    """A share of runs with Wilson's interval; of no run it is 0, and may be anything."""
    if count == 0:
        return Estimate(0.0, 0.0, 1.0, 0)
    interval = wilson(hits, count)
    return Estimate(interval.value, interval.low, interval.high, count)


def mean_interval(values: Sequence[float]) -> Interval:
    """A mean with Student's interval; a single value may lie anywhere around it."""
    count, mean = len(values), fmean(values)
    half = student_quantile(TAIL, count - 1) * stdev(values) / math.sqrt(count) if count > 1 else math.inf
    return Interval(mean, mean - half, mean + half)


def bootstrap(values: Sequence[float]) -> Estimate:
    """The mean with the 2.5th and 97.5th percentile of the means of resamples, drawn out as far as few values ask for.

    As they are, the percentiles hold the truth in 84% of cases and not in 95% where there are five values: resamples
    vary less than samples do, by sqrt((n - 1) / n), and nobody knows by how much samples vary. Both are in Student's t,
    so the percentiles are drawn out from the mean by t / z * sqrt(n / (n - 1)). One value has no width.
    """
    import torch

    if not values:
        raise ValueError("a mean of nothing")
    count, mean = len(values), fmean(values)
    if count == 1:
        return Estimate(mean, mean, mean, 1)
    means_R = torch.tensor(values, dtype=torch.float64)[_resamples(count, "bootstrap", count)].mean(1)
    quantiles = torch.quantile(means_R, torch.tensor([TAIL, 1.0 - TAIL], dtype=torch.float64))
    low, high = (mean + _drawn_out(count) * (end - mean) for end in quantiles.tolist())
    return Estimate(mean, low, high, count)


def chance_of_best(columns: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """For paired columns of equal length: in what share of resamples of the rows each has the highest mean.

    Resamples are drawn out like those of an interval. One row is a resample of itself, always.
    """
    import torch

    values_NC = torch.tensor(list(columns.values()), dtype=torch.float64).T
    means_RC, centre_C = values_NC[_resamples(len(values_NC), "chance of best")].mean(1), values_NC.mean(0)
    if len(values_NC) > 1:
        means_RC = centre_C + _drawn_out(len(values_NC)) * (means_RC - centre_C)
    best_R = means_RC.argmax(1)
    return {name: float((best_R == i).double().mean()) for i, name in enumerate(columns)}


def _resamples(count: int, *names: object) -> Tensor:
    """rows_RN: rows drawn with replacement, the same ones every time."""
    import torch

    from holdfast.randomness import generator

    return torch.randint(count, (DRAWS, count), generator=generator(BOOTSTRAP_SEED, *names))


def _drawn_out(count: int) -> float:
    """By how much means of resamples have to vary more for so many values, of which there are at least two."""
    return student_quantile(TAIL, count - 1) / Z * math.sqrt(count / (count - 1))
