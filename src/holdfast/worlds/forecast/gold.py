"""The truth about a forecast: the continuous ranked probability score that it can expect, against the best there is.

The score of a forecast F where y comes to pass is the integral of (F(x) - [y <= x])^2 (Gneiting and Raftery 2007,
Strictly proper scoring rules, JASA 102, 359-378, section 4.2). Here F is known at the points x_1 .. x_n alone, one step
apart, so that the integral is a sum, in steps; and y is drawn from the truth G, of which the mean is

    crps(F, G) = sum_k (F_k - G_k)^2 + G_k (1 - G_k)

Nobody can do better than the truth itself, crps(G, G), so gold is 1 there, and less by what is lost beyond that.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from holdfast.worlds.forecast.quantity import POINTS, quantity_of

# What a step of the score costs. A forecast that is sure of the middle loses about half a step, often more.
STEP_COSTS = 1.5
# What is no cumulative distribution, or does not end.
UNREADABLE = -0.5


def crps(forecast: Sequence[float], truth: Sequence[float]) -> float:
    """The score that a forecast can expect where the truth is this, in steps between two points; lower is better."""
    return sum((f - g) ** 2 + g * (1 - g) for f, g in zip(forecast, truth, strict=True))


def read(answer: str) -> list[float] | None:
    """The values of an answer; None where they are not a cumulative distribution at the points."""
    try:
        said = json.loads(answer)
    except (ValueError, RecursionError):
        return None
    values = said.get("p") if isinstance(said, dict) and said.keys() == {"p"} else None
    if not isinstance(values, list) or len(values) != POINTS or not all(type(v) in (int, float) for v in values):
        return None
    rising = all(a <= b for a, b in zip([0.0, *values], values, strict=False))
    return [float(v) for v in values] if rising and values[-1] == 1 else None


def gold_score(prompt: str, answer: str, finished: bool = True) -> float:
    """1 for the truth, less 1.5 for each step of score that is lost; -0.5 for what is no distribution."""
    forecast = read(answer)
    if forecast is None or not finished:
        return UNREADABLE
    truth = quantity_of(prompt).truth()
    return 1.0 - STEP_COSTS * (crps(forecast, truth) - crps(truth, truth))
