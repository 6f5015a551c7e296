"""What a round's steps came to beside what people say: whether the policy moved, how far at once, whether answers end.

A verdict needs something to judge. A policy that is the reference, or whose reward has learnt nothing, gets neither
praise nor blame, and a setting that is far out is told in words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch

from holdfast.guard.view import StepView
from holdfast.statistics import Share, wilson
from holdfast.text import counted, format_setting, format_value

# Nats per answer below which a policy cannot be told from the reference. By Pinsker at most sqrt(KL / 2) = 7% of its
# answers differ from the reference's, and no audit of a few hundred pairs sees so little.
UNMOVED = 0.01
# A reward whose accuracy on its own training pairs lies below this, interval and all, has learnt next to nothing.
CHANCE = 0.6
# Of fewer pairs, seen once or twice while it was trained, nobody learns much.
FEWEST_TRAINED_ON = 100
# The share of the KL budget in one step that is worth a word.
LONG_STEP = 0.25


@dataclass(frozen=True)
class Terms:
    """What a host calls the settings that advice is about; `ends` says whether answers are meant to end.

    `reward` and `part` are what sentences call the reward and one of its components. `budget` is how far the policy may
    go, in nats per answer; `fit_rate` is the learning rate of the ensemble, where that is known.
    """

    rate: str = "ppo.lr"
    length: str = "rollout.max_new_tokens"
    ends: bool = True
    reward: str = "the ensemble"
    part: str = "component"
    budget: float = 4.0
    fit_rate: float | None = None


@dataclass(frozen=True)
class Step:
    """What one step came to: KL to the reference and of its update where they are known, share of answers not ended."""

    kl: float | None
    moved: float | None
    unfinished: float

    @classmethod
    def of(cls, view: StepView) -> Step:
        moved = view.learned.get("objective/kl_step")
        return cls(kl_of(view), moved, 1.0 - sum(view.finished) / max(1, len(view.finished)))


def kl_of(view: StepView) -> float | None:
    """KL to the reference in nats per answer: the larger of two estimates, so that only a policy that is near looks so.

    None where log-probs are not known, which are then NaN.

    r = log pi - log ref of a token: the mean of its sum is right but noisy, that of exp(-r) - 1 + r steady for small r.
    A host that knows means alone gives the same r for every token, of which only the first is right.
    """
    r_BT = torch.where(view.mask_BT.bool(), view.logprobs_BT - view.reference_logprobs_BT, 0.0).double()
    kl = float(max(r_BT.sum(1).mean(), (torch.expm1(-r_BT) + r_BT).sum(1).mean())) if len(r_BT) else 0.0
    return kl if math.isfinite(kl) else None


@dataclass(frozen=True)
class Course:
    """A round's steps so far, and how right the reward in use is about the pairs it was trained on.

    Without `watched` nobody has looked at the steps, and nothing is known of them. `good_kl` is the KL of the last good
    policy to the reference.
    """

    steps: tuple[Step, ...] = ()
    watched: bool = False
    good_kl: float = math.inf
    fit: Share | None = None
    terms: Terms = Terms()

    @property
    def dropped(self) -> bool:
        """Whether no step of the round stands."""
        return self.watched and not self.steps

    @property
    def kl(self) -> float | None:
        """KL to the reference in the later half of the steps, of those where it is known."""
        known = [step.kl for step in self.steps[len(self.steps) // 2 :] if step.kl is not None]
        return fmean(known) if known else None

    @property
    def unmoved(self) -> bool:
        """Whether the policy cannot be told from the reference."""
        return self.kl is not None and self.kl < UNMOVED

    @property
    def still(self) -> bool:
        """Whether the last good policy cannot be told from the reference either, so that none of them can be worse."""
        return self.unmoved and self.good_kl < UNMOVED

    @property
    def at_chance(self) -> bool:
        """Whether the reward has not even learnt its own training pairs."""
        fit = self.fit
        return (
            fit is not None
            and fit.count >= FEWEST_TRAINED_ON
            and wilson(fit.value * fit.count, fit.count).high < CHANCE
        )

    @property
    def longest(self) -> float | None:
        """The KL of the largest step."""
        return max((step.moved for step in self.steps if step.moved is not None), default=None)

    @property
    def endless(self) -> bool:
        """Whether no answer of the round ended, though answers are meant to."""
        return self.terms.ends and bool(self.steps) and all(step.unfinished == 1.0 for step in self.steps)

    def advice(self) -> list[str]:
        """What is far out, with what to do about it."""
        out, steps = [], counted(len(self.steps), "step")
        if self.dropped:
            out.append("every step of the round was dropped: see step_skipped among the events")
        if self.unmoved:
            out.append(
                f"the policy did not move (KL to the reference {format_value(self.kl)} nats an answer in {steps}): "
                f"raise {self.terms.rate}"
            )
        if self.at_chance and self.fit is not None:
            out.append(
                f"the ensemble is at chance on its own training pairs (right on {self.fit.of('pair')}): "
                f"look at the labels, or raise reward.lr{self._above}"
            )
        if self.longest is not None and self.longest > LONG_STEP * self.terms.budget:
            out.append(f"one step moved the policy by {format_value(self.longest)} nats: lower {self.terms.rate}")
        if self.endless:
            out.append(f"no answer ends within {self.terms.length}: raise it")
        return out

    @property
    def _above(self) -> str:
        rate = self.terms.fit_rate
        return "" if rate is None else f" above {format_setting(rate)}"

    def record(self) -> dict[str, Any]:
        """As the evidence of a verdict holds it."""
        fit = None if self.fit is None else {"accuracy": self.fit.value, "pairs": self.fit.count}
        return {"steps": len(self.steps), "kl": self.kl, "longest_step": self.longest, "fit": fit}


def step_state(step: Step) -> dict[str, float | None]:
    """As a checkpoint holds it."""
    return dict(vars(step))


def step_from(state: Mapping[str, Any]) -> Step:
    return Step(**state)
