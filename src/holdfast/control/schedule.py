"""Learning rates: of the policy, which settles; and of a refresh, whose length is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.errors import HoldfastError

# What settling multiplies the policy's rate by, and the share of the first rate below which it never falls, so that the
# policy can still follow an ensemble that has changed.
DECAY, FLOOR = 0.7, 0.1
# What slowing down multiplies it by, once.
SLOWER = 0.5


class LearningRate:
    """The policy's learning rate: linear warm-up, then a cut each time the policy has settled.

        rate = base * min(1, (step + 1) / warmup_steps) * max(floor, decay ^ times settled)

    An online run has no known end to decay towards; what it has is a reward that stops rising. The loop feeds
    its reward to a `Plateau` and calls `settle` when that has settled. `slow_down` halves the rate for good.
    """

    def __init__(self, base: float, warmup_steps: int) -> None:
        self.base = base
        self._warmup_steps = warmup_steps
        self._step = 0
        self._factor = 1.0

    @property
    def share(self) -> float:
        """What warm-up, settling and slowing down leave of the base."""
        return _warm(self._step, self._warmup_steps) * self._factor

    @property
    def rate(self) -> float:
        """The learning rate of the step about to be taken."""
        return self.base * _warm(self._step, self._warmup_steps) * self._factor

    def advance(self) -> None:
        """One step was taken."""
        self._step += 1

    def settle(self) -> None:
        """The policy has settled: cut the rate by the decay, not below the floor."""
        self._factor = min(self._factor, max(FLOOR, self._factor * DECAY))

    def slow_down(self, times: int) -> None:
        """Steps came out as no numbers, or as a worse policy: halve the rate, so many times, whatever the floor."""
        self._factor *= SLOWER**times

    def state(self) -> dict[str, Any]:
        return {"step": self._step, "factor": self._factor}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._step, self._factor = state["step"], state["factor"]


@dataclass(frozen=True)
class Annealing:
    """The share of the learning rate that is left at a step of the run: linear, from 1 to `final` at the last one.

    It follows the run's own count of steps, which the guard's rollbacks do not take back, so that a run always ends
    calmly; an owner's rollback frees the rounds that it undid, and takes their steps back.
    """

    final: float
    steps: int

    def at(self, step: int) -> float:
        """The share for the step about to be taken, counted from 0."""
        done = min(1.0, max(0, step) / max(1, self.steps - 1))
        return 1.0 - (1.0 - self.final) * done


@dataclass(frozen=True)
class RefreshSchedule:
    """The reward models' learning rate within one refresh: linear warm-up, then linear decay to 10%.

    It has no state: a refresh starts and ends within one round.
    """

    lr: float
    warmup_steps: int
    total_steps: int

    def __post_init__(self) -> None:
        if not self.lr > 0:
            raise HoldfastError(
                "The learning rate is 0, for which a run chooses one that suits its model: give one above 0."
            )

    def at(self, step: int) -> float:
        """The rate of step 0, 1, ..., total_steps - 1; the last one has a tenth of `lr`."""
        if step < self.warmup_steps:
            return self.lr * _warm(step, self.warmup_steps)
        # The peak is at the last warm-up step (or at step 0), the tenth at the last step of all.
        peak = max(self.warmup_steps - 1, 0)
        length = self.total_steps - 1 - peak
        done = min(1.0, (step - peak) / length) if length > 0 else 0.0
        return self.lr * (1.0 - 0.9 * done)


def _warm(step: int, warmup_steps: int) -> float:
    return min(1.0, (step + 1) / warmup_steps) if warmup_steps > 0 else 1.0
