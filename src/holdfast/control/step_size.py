"""Steps of a size that fits the model: a policy whose learning rate nobody has set, by the KL that its steps move.

    aim -> learn -> KL of the step -> taken back and taken again, or kept -> the rate of the next step

A rate that suits one model is a hundred times too large for another; the KL of a step in nats per answer, measured on
the step's own answers, means the same for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.control.schedule import LearningRate

# Steps of full size that the KL budget is worth. Steps all in one direction add up in the square root of the KL, so
# that they would take a policy there in the square root of this number.
STEPS = 16
# The first steps are taken back and taken again until they are within this factor of the aim, whichever way they miss.
FIRST_STEPS, FIRST_FACTOR = 6, 2.0
# A later one only where it is longer than this multiple of the aim.
LATER_FACTOR = 4.0
# A try moves the rate by at most this factor, there are so many of them in a step, and the rate never gets further
# above the one that it began with than this.
TRY_FACTOR, MOST_TRIES, MOST_GROWTH = 10.0, 10, 100.0
# What is measured is noisy, so that half of what a step missed by (in its logarithm) is made up for, within a bound.
MAKE_UP, MAKE_UP_BOUND = 0.5, 1.5
# A set rate is far out where one step moves the policy by more than this share of the KL budget, or where a rate this
# many times as large would still be too small.
FAR_TOO_LONG, FAR_TOO_SHORT = 0.5, 30.0


@dataclass(frozen=True)
class StepAim:
    """The KL that a step is to move, in nats per answer, and from where to where it is let be.

    `ceiling` is the largest rate that a step which moves too little is taken with.
    """

    aim: float
    low: float
    high: float
    ceiling: float = math.inf

    def again(self, tried: Sequence[tuple[float, float]]) -> float | None:
        """The rate to take a step again with, after the rates and KLs of the tries so far; None where the last stands.

        The KL of a step goes with the square of its rate, as long as it is small:  rate <- rate sqrt(aim / KL).  Where
        that leads beyond a rate that was found too small or too large, halfway between those two is taken.
        """
        rate, kl = tried[-1]
        # A step of no length at all has learnt from answers that are all worth the same, and says nothing of the rate.
        if self.low <= kl <= self.high or kl <= 0.0 or len(tried) == MOST_TRIES:
            return None
        if kl < self.low and rate >= self.ceiling:
            return None
        factor = min(max(math.sqrt(self.aim / kl), 1 / TRY_FACTOR), TRY_FACTOR)
        wanted = min(rate * factor, self.ceiling)
        small = max((r for r, moved in tried if moved < self.low), default=0.0)
        large = min((r for r, moved in tried if moved > self.high), default=math.inf)
        return wanted if small < wanted < large else math.sqrt(small * large)


class StepSize:
    """Sizes the steps of a learning rate that the program has chosen.

        aim   = budget / 16 * share^2
        rate <- rate * clip((aim / KL)^(1/4), 1 / 1.5, 1.5)

    `share` is what schedules, slowing down and the KL controller's pace leave of the rate; the KL of a step goes with
    the square of it. The first six steps are within a factor of two of their aim, and none is above four times it.
    From then on the rate changes by at most 1.5 from step to step.
    """

    def __init__(self, schedule: LearningRate) -> None:
        self._schedule = schedule
        self._most = schedule.base * MOST_GROWTH
        self._steps = 0

    def band(self, budget: float, share: float) -> StepAim:
        """What the next step is to move, of a policy that may go `budget` nats from the reference."""
        aim = budget / STEPS * share**2
        first = self._steps < FIRST_STEPS
        low, high = (aim / FIRST_FACTOR, aim * FIRST_FACTOR) if first else (0.0, aim * LATER_FACTOR)
        return StepAim(aim, low, high, self._most * share)

    def learn(self, rate: float, kl: float, aim: float) -> None:
        """Take in a step that stands: its rate, before any share of it is left out, and what it moved."""
        bound = MAKE_UP_BOUND
        factor = min(max((aim / kl) ** (MAKE_UP / 2), 1 / bound), bound) if kl > 0 else 1.0
        wanted, before = min(rate * factor, self._most), self._schedule.base
        # Later on a step that was taken back may have been measured wrongly, and the rate is no more than moved by it.
        later = self._steps >= FIRST_STEPS
        self._schedule.base = min(max(wanted, before / bound), before * bound) if later else wanted
        self._steps += 1

    def state(self) -> dict[str, Any]:
        return {"rate": self._schedule.base, "steps": self._steps}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._schedule.base, self._steps = state["rate"], state["steps"]


def far_out(budget: float) -> StepAim:
    """From where to where one step at a rate that somebody has set is nothing to be warned of."""
    aim = budget / STEPS
    return StepAim(aim, aim / FAR_TOO_SHORT**2, budget * FAR_TOO_LONG)


def near(aim: float) -> StepAim:
    """As near to the aim as a first step is."""
    return StepAim(aim, aim / FIRST_FACTOR, aim * FIRST_FACTOR)
