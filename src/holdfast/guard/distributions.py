"""Tails of the distributions that the guard's tests need, without a statistics library.

The regularised incomplete beta function I_x(a, b) carries all of them: Student's t, and the evidence of the
sequential test. Logarithms throughout, because the evidence of a long run leaves the range of a float.
"""

from __future__ import annotations

import math

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


def normal_tail(z: float) -> float:
    """P(Z > z) for a standard normal."""
    return 0.5 * math.erfc(z / math.sqrt(2.0))
