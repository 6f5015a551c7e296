"""What the guard asks of whoever it watches over: our own loop, TRL's trainer, or a trainer of yours.

The guard judges and decides; the host answers prompts with its policies and carries out what is decided. Each change is
read back from the live object, so that what an event says is what is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from holdfast.guard.course import Terms
from holdfast.guard.trust import AskedAgain
from holdfast.guard.view import StepView
from holdfast.preferences.collector import Sample
from holdfast.reward.source import Scored
from holdfast.rollout.sampler import Rollout
from holdfast.statistics import Share

# Whoever answers prompts: a `Policy` in our own loop, a name for one of a trainer's models elsewhere.
Player = TypeVar("Player")


@dataclass(frozen=True)
class Good:
    """The last good checkpoint. Before any round has been found good it is the policy's beginning, the reference.

    `kl` is that of its policy to the reference, in nats per answer.
    """

    name: str = "round-0000"
    round: int = 0
    step: int = 0
    kl: float = 0.0


@dataclass(frozen=True)
class Change:
    """What a host did about something, with the value before it and the one read back after it."""

    words: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]


class Host(Protocol[Player]):
    """What a review needs of a trainer: answers of its policies, and the ways in which it can be changed.

    A remedy that a host does not have (a trainer without labels of its own cannot label more) returns None, and is
    written down as left out.
    """

    @property
    def round(self) -> int: ...

    @property
    def last(self) -> bool:
        """Whether this is the run's last round, in which it is decided which policy the run ends with."""
        ...

    @property
    def refreshes_at_once(self) -> bool:
        """Whether a refresh is done in the review itself; our own loop does it in its next round."""
        ...

    @property
    def terms(self) -> Terms:
        """What its settings are called."""
        ...

    @property
    def fit(self) -> Share | None:
        """How right the reward in use is about the pairs that it was trained on, where that is known."""
        ...

    def again(self) -> Mapping[str, AskedAgain]:
        """How each labeller has answered what it was asked a second time."""
        ...

    @property
    def policy(self) -> Player: ...

    @property
    def reference(self) -> Player: ...

    @property
    def anchor(self) -> Player:
        """The last good policy."""
        ...

    @property
    def sample(self) -> Sample[Player]:
        """How these answer."""
        ...

    def baseline(self, rng: torch.Generator) -> StepView:
        """A batch of the reference's answers, as large as a step's."""
        ...

    def learn_known(self) -> None:
        """Tell the guard's signals what has been labelled, as the reward in use sees it."""
        ...

    def keep_good(self) -> Good:
        """Make the present policy the anchor, and keep it where a rollback finds it."""
        ...

    def roll_back(self, good: Good) -> Mapping[str, Any] | None:
        """Go back to the anchor as one transaction; what the event says of it. None where it was not done."""
        ...

    def tighten(self, beta_factor: float, target_factor: float, floor: float) -> Change | None:
        """Raise beta, and lower the KL that is aimed at, but not below the floor."""
        ...

    def slow_down(self, times: int) -> Change | None:
        """Lower the learning rate."""
        ...

    def label_more(self) -> Change | None:
        """More comparisons in the next round, those on which members disagree where there are several."""
        ...

    def refresh(self, reason: str) -> Change | None:
        """Refresh the reward on new labels, now or in the next round."""
        ...

    def discount(self, component: str, factor: float) -> Change | None:
        """Count a component of the reward for less, the one that is being hacked; an empty name is the whole reward."""
        ...

    def adversarial(self, good: Good) -> Change | None:
        """Hacked answers beside good ones to the same prompts, labelled, for the refreshes to come."""
        ...

    def event(self, kind: str, **fields: object) -> None:
        """Write down that something happened."""
        ...

    def say(self, line: str) -> None:
        """Tell whoever watches."""
        ...


def floored(target: float | None, factor: float, floor: float) -> float:
    """The factor that lowers a target no further than to the floor; one that is lower already stays where it is."""
    if target is None or factor * target >= floor:
        return factor
    return min(1.0, floor / target)


def view_of(
    rollout: Rollout,
    scored: Scored,
    reference_BT: Tensor,
    learned: Mapping[str, float],
    logprobs_BT: Tensor | None = None,
) -> StepView:
    """A batch as the signals see it; `logprobs_BT` stand in where the rollout's own are not known."""
    return StepView(
        prompts=rollout.prompts,
        responses=rollout.responses,
        finished=rollout.finished,
        logprobs_BT=rollout.logprobs_BT if logprobs_BT is None else logprobs_BT,
        reference_logprobs_BT=reference_BT,
        mask_BT=rollout.mask_BT,
        scores_KB=scored.members_KB,
        features_BD=scored.features_BD,
        given_B=scored.given_B,
        components=scored.components,
        learned=learned,
        of_reference=not learned,
    )
