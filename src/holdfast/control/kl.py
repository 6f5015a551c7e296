"""KL controllers: how strongly the policy is held to the reference.

    step -> mean KL of the batch to the reference -> update(kl, batch, labels) -> beta of the next step

`FixedKL` never moves. `AdaptiveKL` steers beta so that the KL comes to a target and stays there. `BudgetKL`
does the same for a target that grows with the number of labels: the more people have said, the further the
reward can be trusted, the further the policy may go.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.errors import HoldfastError

# Answers over which beta reacts: three steps of 64, slower than a step's noise and faster than a round.
HORIZON = 192.0

# Ziegler's bound on the relative error of one step.
ERROR_BOUND = 0.2
# A KL that is heading past this multiple of the target is corrected with the wider bound.
OVERRUN = 1.5
OVERRUN_BOUND = 1.0
# Within the steps that this line is read ahead a KL is not to get above this multiple of the target, and not to fall by
# more than this share of it; where beta alone does not see to it, steps get shorter, down to this share of the rate.
MOST_OVER, MOST_FALL = 1.2, 0.25
LEAST_PACE = 0.1
# Smoothing of the measured KL and of its slope, and how many steps ahead the line through them is read.
LEVEL_WEIGHT = 0.5
SLOPE_WEIGHT = 0.3
LEAD_STEPS = 8
# No single step more than halves or doubles beta, and no run takes it further than this from its start.
STEP_BOUND = 2.0
# Where beta was 0 and the policy is to be held after all: what a run begins with by default, per standard deviation of
# the reference's scores.
FIRST_BETA = 0.05
BETA_RANGE = 100.0
# Nats of entropy of the built-in model's answers, for which budgets were found, and the least that they are scaled by.
ENTROPY = 11.0
LEAST_UNIT = 0.25


class KLController(Protocol):
    """Holds beta, the weight of the KL penalty, and moves it as the KL is measured."""

    @property
    def beta(self) -> float:
        """The weight of the KL penalty, to be read afresh at every step."""
        ...

    @property
    def target(self) -> float | None:
        """The KL to the reference that is aimed at, in nats per response; None if none is."""
        ...

    @property
    def pace(self) -> float:
        """The share of its learning rate that a policy whose steps are sized may go on with, so as not to overshoot."""
        ...

    def update(self, kl: float, batch: int, labels: int) -> None:
        """Take in one step: its mean KL per response, its number of responses, all labels so far."""
        ...

    def tighten(self, beta_factor: float = 1.0, target_factor: float = 1.0) -> None:
        """Multiply beta and the target, once and lastingly: the remedy after a rollback."""
        ...

    def state(self) -> dict[str, Any]:
        """Everything that moves, as JSON."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what `state` gave, exactly."""
        ...


class FixedKL:
    """The same beta at every step. Tightened where it is 0, it begins at `FIRST_BETA`."""

    def __init__(self, beta: float) -> None:
        if not (math.isfinite(beta) and beta >= 0):
            raise HoldfastError(f"The KL penalty beta is {beta}; set it to 0 or above.")
        self.beta = beta
        self.target = None
        self.pace = 1.0

    def update(self, kl: float, batch: int, labels: int) -> None:
        """Nothing to learn, but a KL that is not a number is refused as everywhere."""
        _check_step(kl, batch, labels)

    def tighten(self, beta_factor: float = 1.0, target_factor: float = 1.0) -> None:
        """Multiply beta, switched on where it is 0; there is no target."""
        _check_factors(beta_factor, target_factor)
        if beta_factor > 1.0:
            self.beta = self.beta or FIRST_BETA
        self.beta *= beta_factor

    def state(self) -> dict[str, Any]:
        return {"kind": "fixed", "beta": self.beta}

    def restore(self, state: Mapping[str, Any]) -> None:
        check_kind(state, "fixed")
        self.beta = state["beta"]


class AdaptiveKL:
    """Steers beta so that the KL to the reference comes to `target` and stays there.

    The core is the rule of Ziegler et al. 2019 (arXiv:1909.08593):

        error = clip(KL / target - 1, -0.2, 0.2)
        beta <- beta (1 + error * batch / horizon)

    This is an integral controller made for very long runs. In a run of 60 to 150 steps it has two faults, and
    there is one addition for each:

    - The KL begins at 0 and answers beta with a lag, so beta keeps shrinking on the way up and the KL
      shoots past the target (wind-up). Hence the error is taken from where the KL is heading: its smoothed
      level plus 8 times its smoothed slope (Holt's linear smoothing). A KL on its way to the target ends
      the shrinking.
    - A beta that started far too low is raised as slowly as any other, while the policy runs away. Hence,
      while the KL is heading past 1.5 times the target, the upper bound of the error is 1.0 instead of
      0.2. Nearer the target the bounds stay equal, because unequal ones would turn noise into a bias.

    Two limits guard the arithmetic. One step multiplies beta by 0.5 to 2, so that no batch / horizon can
    turn it negative. And beta stays within a factor of 100 of its start, so that a KL which cannot reach
    its target (a weak reward, say) does not wind beta down to nothing.

    `horizon` is in responses, and it sets the speed: about 5 times the batch suits runs of 100 steps, 4 times
    shorter ones. The 10,000 of the paper's code does next to nothing in so short a run. No rule undoes at
    once a start that is far too low. Where steps are sized by the KL that they move, `pace` shortens them
    while the KL rises or falls faster than it may, so that beta has the time:

        pace = clip(room / (8 |slope|), 0.1, 1)      room = 1.2 target - level where it rises, target / 4 where it falls
    """

    def __init__(self, beta: float, target: float, horizon: float = HORIZON) -> None:
        _check_positive("KL penalty beta", beta)
        _check_positive("KL target", target)
        _check_positive("KL horizon", horizon)
        self._start = beta
        self._beta = beta
        self._base_target = target
        self._target_scale = 1.0
        self._horizon = horizon
        self._level: float | None = None
        self._slope = 0.0

    @property
    def beta(self) -> float:
        return self._beta

    @property
    def target(self) -> float:
        return self._base_target * self._target_scale

    @property
    def pace(self) -> float:
        if self._level is None or self._slope == 0:
            return 1.0
        room = MOST_OVER * self.target - self._level if self._slope > 0 else MOST_FALL * self.target
        return min(1.0, max(LEAST_PACE, room / (LEAD_STEPS * abs(self._slope))))

    def update(self, kl: float, batch: int, labels: int) -> None:
        """Move beta by one step of the rule; labels do not matter here."""
        _check_step(kl, batch, labels)
        ahead = self._observe(kl) + LEAD_STEPS * self._slope
        bound = OVERRUN_BOUND if ahead > OVERRUN * self.target else ERROR_BOUND
        error = min(max(ahead / self.target - 1.0, -ERROR_BOUND), bound)
        factor = 1.0 + error * batch / self._horizon
        self._set_beta(self._beta * min(max(factor, 1.0 / STEP_BOUND), STEP_BOUND))

    def tighten(self, beta_factor: float = 1.0, target_factor: float = 1.0) -> None:
        """Multiply beta and the target; a beta raised alone drifts back while the KL is below its target."""
        _check_factors(beta_factor, target_factor)
        self._set_beta(self._beta * beta_factor)
        self._target_scale *= target_factor

    def retarget(self, target: float) -> None:
        """Aim at another KL, before any tightening; what is known of the KL's level and slope is kept."""
        _check_positive("KL target", target)
        self._base_target = target

    def state(self) -> dict[str, Any]:
        return {
            "kind": "adaptive",
            "beta": self._beta,
            "target_scale": self._target_scale,
            "level": self._level,
            "slope": self._slope,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        check_kind(state, "adaptive")
        self._beta, self._target_scale = state["beta"], state["target_scale"]
        self._level, self._slope = state["level"], state["slope"]

    def _observe(self, kl: float) -> float:
        if self._level is None:
            self._level = kl
            return kl
        level = LEVEL_WEIGHT * kl + (1.0 - LEVEL_WEIGHT) * (self._level + self._slope)
        self._slope += SLOPE_WEIGHT * (level - self._level - self._slope)
        self._level = level
        return level

    def _set_beta(self, beta: float) -> None:
        self._beta = min(max(beta, self._start / BETA_RANGE), self._start * BETA_RANGE)


@dataclass(frozen=True)
class KLBudget:
    """How far a policy may go from the reference, in nats per response, by the labels behind its reward.

    target = min(ceiling, start + per_1000_labels * labels / 1000)
    """

    start: float
    per_1000_labels: float
    ceiling: float

    def at(self, labels: int) -> float:
        return min(self.ceiling, self.start + self.per_1000_labels * labels / 1000)

    def scaled(self, unit: float) -> KLBudget:
        """The same budget for answers of which `unit` nats say as much as one nat says of these."""
        return KLBudget(unit * self.start, unit * self.per_1000_labels, unit * self.ceiling)


def unit_of(entropy: float) -> float:
    """What one nat of a budget is worth for a model whose answers have so many nats of entropy.

        unit = max(0.25, sqrt(entropy / 11))

    11 nats are the entropy of the built-in model's answers. With n tokens of the same kind the unit grows as sqrt(n):
    one KL for all lengths would leave long answers no room, and a KL per token would let them drift far in what no
    reward measures.
    """
    return max(LEAST_UNIT, math.sqrt(max(0.0, entropy) / ENTROPY))


class BudgetKL:
    """An `AdaptiveKL` whose target grows with the labels collected, as `KLBudget` has it."""

    def __init__(
        self, beta: float, start: float, per_1000_labels: float, ceiling: float, horizon: float = HORIZON
    ) -> None:
        if not (math.isfinite(per_1000_labels) and per_1000_labels >= 0):
            raise HoldfastError(f"The KL budget per 1000 labels is {per_1000_labels}; set it to 0 or above.")
        if not ceiling >= start:
            raise HoldfastError(
                f"The KL budget's ceiling {ceiling} is below its start {start}; raise the ceiling or lower the start."
            )
        self._budget = KLBudget(start, per_1000_labels, ceiling)
        self._labels = 0
        self._adaptive = AdaptiveKL(beta, start, horizon)

    @property
    def beta(self) -> float:
        return self._adaptive.beta

    @property
    def target(self) -> float:
        return self._adaptive.target

    @property
    def pace(self) -> float:
        return self._adaptive.pace

    def update(self, kl: float, batch: int, labels: int) -> None:
        """Set the target that `labels` have earned, then move beta towards it."""
        _check_step(kl, batch, labels)
        self._earn(labels)
        self._adaptive.update(kl, batch, labels)

    def tighten(self, beta_factor: float = 1.0, target_factor: float = 1.0) -> None:
        """Multiply beta and the whole budget: start, growth and ceiling."""
        self._adaptive.tighten(beta_factor, target_factor)

    def state(self) -> dict[str, Any]:
        return {"kind": "budget", "labels": self._labels, "adaptive": self._adaptive.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        check_kind(state, "budget")
        self._adaptive.restore(state["adaptive"])
        self._earn(state["labels"])

    def _earn(self, labels: int) -> None:
        self._labels = labels
        self._adaptive.retarget(self._budget.at(labels))


def check_kind(state: Mapping[str, Any], kind: str) -> None:
    """Refuse the state of another kind of controller."""
    if state["kind"] != kind:
        raise HoldfastError(
            f"The saved state is of kind {state['kind']!r}, but the run is set up for {kind!r}; "
            "resume with the settings that the run began with."
        )


def _check_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise HoldfastError(f"The {name} is {value}; set it above 0.")


def _check_step(kl: float, batch: int, labels: int) -> None:
    # Such a step is dropped before it gets here; taking it in would leave beta NaN for good.
    if not math.isfinite(kl):
        raise ValueError(f"A KL of {kl} cannot steer beta; drop the step instead.")
    if batch < 1 or labels < 0:
        raise ValueError(f"A step has at least one response and no negative labels, not {batch} and {labels}.")


def _check_factors(beta_factor: float, target_factor: float) -> None:
    for factor in (beta_factor, target_factor):
        if not (math.isfinite(factor) and factor > 0):
            raise ValueError(f"A factor for beta or the target must be above 0, not {factor}.")
