"""What a difference in reward is worth to people, learnt from audits: the claim of a reward that is one number.

A reward model says how likely people are to prefer an answer. A verifier, a rubric or a judge's score says no such
thing, so what it claims is measured on the audits of rounds that could be trusted:

    P(people prefer the first) = sigma(k d),  d = reward of the first less that of the second

without an intercept, as exchanging the sides changes the sign of d and nothing else. k is the mode of the posterior
under k ~ N(0, WIDTH^2), found by Newton's steps, and its variance the inverse of the curvature there (Laplace). Claims
are made with the lower end of its 95% interval: the guard holds claims against a policy, so they may be too small and
must not be too large.

Until `ENOUGH` decided pairs say with that confidence that k is above 0 there is no claim. Then it says which way the
reward points and no more, a hair from 1/2, and evidence comes from whom people prefer alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.statistics import normal_quantile

ENOUGH = 30
# Standard deviation of k before any audit, for differences in units of their own spread: e^(2 x 4) to 1 is as sure as
# anything here may get.
WIDTH = 4.0
CONFIDENCE = 0.05
# How far from 1/2 a claim lies that says which way the reward points and no more.
HAIR = 1e-3
_STEPS = 50


@dataclass
class Scale:
    """The audits so far, as differences in reward with what people preferred (1, 0, 1/2 for a tie)."""

    pairs: list[tuple[float, float]] = field(default_factory=list)

    def add(self, differences: Sequence[float], outcomes: Sequence[float]) -> None:
        """More audits. Where the reward does not tell the sides apart there is nothing to learn."""
        told = zip(differences, outcomes, strict=True)
        self.pairs += [(float(d), float(y)) for d, y in told if math.isfinite(d) and d != 0.0]

    @property
    def decided(self) -> int:
        return sum(y != 0.5 for _, y in self.pairs)

    @property
    def slope(self) -> Slope:
        return slope_of(self.pairs)

    @property
    def ready(self) -> bool:
        """Whether the audits say what the reward is worth."""
        return self.decided >= ENOUGH and self.slope.low > 0.0

    def claims(self, differences: Sequence[float]) -> list[float]:
        """The probability that people prefer the first side, of each pair."""
        if not self.ready:
            return [0.5 + HAIR * _sign(d) for d in differences]
        low = self.slope.low
        return [sigmoid(low * d) if math.isfinite(d) else 0.5 for d in differences]

    def words(self) -> str:
        """What is known, for a person."""
        if not self.ready:
            return (
                f"{self.decided} audits so far do not say what a difference in reward is worth to people, so nothing "
                "is claimed"
            )
        return f"by {self.decided} audits a difference of 1 in reward is worth {self.slope.value:.2g} log-odds"

    def state(self) -> dict[str, Any]:
        return {"pairs": [list(pair) for pair in self.pairs]}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.pairs = [(float(d), float(y)) for d, y in state["pairs"]]


@dataclass(frozen=True)
class Slope:
    """k with its standard deviation, in log-odds for each unit of reward."""

    value: float
    sd: float

    @property
    def low(self) -> float:
        return self.value - normal_quantile(CONFIDENCE) * self.sd


def slope_of(pairs: Sequence[tuple[float, float]]) -> Slope:
    """The mode and width of the posterior of k, given differences and what people preferred.

        gradient  = sum d (y - sigma(k d)) - k / W^2        curvature = sum d^2 sigma (1 - sigma) + 1 / W^2

    W is `WIDTH` over the root mean square of d, so that the unit of the reward decides nothing.
    """
    if not pairs:
        return Slope(0.0, WIDTH)
    unit = math.sqrt(math.fsum(d * d for d, _ in pairs) / len(pairs))
    precision = (unit / WIDTH) ** 2
    k = 0.0
    for _ in range(_STEPS):
        chances = [sigmoid(k * d) for d, _ in pairs]
        gradient = math.fsum(d * (y - p) for (d, y), p in zip(pairs, chances, strict=True)) - k * precision
        curvature = math.fsum(d * d * p * (1.0 - p) for (d, _), p in zip(pairs, chances, strict=True)) + precision
        # The posterior is concave, but a full step from a flat place may overshoot: no further than one width at once.
        step = max(-WIDTH / unit, min(WIDTH / unit, gradient / curvature))
        k += step
        if abs(step) * unit < 1e-10:
            break
    return Slope(k, 1.0 / math.sqrt(curvature))


def sigmoid(x: float) -> float:
    """1 / (1 + exp(-x)), without overflow."""
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x))


def _sign(x: float) -> int:
    return (x > 0) - (x < 0)
