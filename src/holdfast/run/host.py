"""The loop as a host of the guard: how our own policies answer, and what each remedy changes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from holdfast.checkpoint.snapshot import Snapshot
from holdfast.checkpoint.store import CheckpointStore, Loaded
from holdfast.errors import HoldfastError
from holdfast.guard.course import Terms
from holdfast.guard.host import Change, Good, floored, view_of
from holdfast.guard.ladder import MORE_LABELS, Rung
from holdfast.guard.plan import AuditPlan
from holdfast.guard.review import Review
from holdfast.guard.trust import AskedAgain
from holdfast.guard.view import StepView
from holdfast.models.policy import Policy
from holdfast.models.sharding import put_state, whole_state
from holdfast.preferences.collector import Collector, Sample
from holdfast.reward.given import GivenReward
from holdfast.reward.refresher import Refresher
from holdfast.run.learner import Learner
from holdfast.run.rollback import RunState, good_at
from holdfast.run.showcase import Showcase
from holdfast.statistics import Share
from holdfast.text import counted

# Labelled comparisons whose answers tell the signals which words have been judged, and answers whose features do:
# enough for stable figures, few enough to take no time.
KNOWN_COMPARISONS = 500
KNOWN_ANSWERS = 256


# Remedies that move an ensemble: a reward that is given has none, but for a corrective, which is trained like one.
WITHOUT_ENSEMBLE: frozenset[Rung] = frozenset({"refresh", "label_more", "adversarial"})


@dataclass
class Orders:
    """What the guard has asked of the rounds to come; it goes on through rollbacks."""

    refresh: str = ""  # why the next round refreshes whatever its triggers say
    label_more: float = 1.0  # factor on the next round's comparisons

    def state(self) -> dict[str, Any]:
        return asdict(self)

    def restore(self, state: Mapping[str, Any]) -> None:
        self.refresh, self.label_more = str(state["refresh"]), float(state["label_more"])


@dataclass
class LoopHost:
    """What a review asks of our own loop. `anchor` holds the weights of the last good policy."""

    learner: Learner
    anchor: Policy
    review: Review[Policy]
    orders: Orders
    collector: Collector
    state: RunState
    checkpoints: CheckpointStore
    showcase: Showcase

    refreshes_at_once = False

    @property
    def round(self) -> int:
        return self.learner.journal.position.round

    @property
    def last(self) -> bool:
        return self.learner.journal.position.of_plan >= self.learner.config.run.rounds

    @property
    def terms(self) -> Terms:
        learner = self.learner
        # Who takes nothing off answers that do not end has no use for an end.
        ends = learner.config.reward.unfinished_penalty > 0
        terms = Terms(learner.rate_setting, ends=ends, budget=learner.allowance, fit_rate=learner.config.reward.lr)
        claimant = self.review.auditor.scalar
        return terms if claimant is None else replace(terms, reward=claimant.name, part=claimant.part)

    @property
    def fit(self) -> Share | None:
        return None if self.refresher is None else self.refresher.ensemble.fit

    @property
    def refresher(self) -> Refresher | None:
        """What trains the ensemble, where there is one."""
        return self.learner.refresher

    def again(self) -> dict[str, AskedAgain]:
        same = {} if self.refresher is None else self.refresher.same_again(self.round)
        return {labeller: AskedAgain(*counts) for labeller, counts in same.items()}

    @property
    def policy(self) -> Policy:
        return self.learner.policy

    @property
    def reference(self) -> Policy:
        return self.learner.reference

    @property
    def sample(self) -> Sample[Policy]:
        return self.learner.answers.sample

    def baseline(self, rng: torch.Generator) -> StepView:
        rollout = self.learner.draw(self.reference, rng)
        return view_of(rollout, self.learner.reward.reward(rollout, rng), rollout.logprobs_BT, {})

    def learn_known(self) -> None:
        if self.refresher is None:
            return  # nothing was labelled for the reward to learn from
        prompts, responses = self.refresher.labelled_answers(KNOWN_COMPARISONS, self.round)
        features_MD = self.refresher.ensemble.features(prompts[:KNOWN_ANSWERS], responses[:KNOWN_ANSWERS])
        self.review.guard.know(responses, features_MD, self.policy.vocabulary)

    def keep_good(self) -> Good:
        """The checkpoint itself is written by the commit that ends the round."""
        self.make_anchor()
        at = self.learner.journal.position
        return Good(f"round-{self.round:04d}", self.round, at.step, self.learner.ledger.reference)

    def make_anchor(self) -> None:
        """The present policy is the anchor from now on."""
        put_state(self.anchor, whole_state(self.policy))

    def roll_back(self, good: Good) -> dict[str, Any]:
        undone = self.state.roll_back(good.name)
        self.showcase.observe()
        return {
            "step_from": self.learner.journal.position.step,
            "kl_undone": undone,
            "undone": self.learner.ledger.undone_spans(),
            **({} if self.refresher is None else {"ensemble_version": self.refresher.ensemble.version}),
        }

    def tighten(self, beta_factor: float, target_factor: float, floor: float) -> Change:
        before, controller = self._held(), self.learner.controller
        controller.tighten(beta_factor, floored(controller.target, target_factor, floor))
        words = "the policy is held closer to the reference"
        return Change(words if before["beta"] else f"{words}: beta was 0", before, self._held())

    def _held(self) -> dict[str, Any]:
        return {"beta": self.learner.controller.beta, "kl_target": self.learner.controller.target}

    def slow_down(self, times: int) -> Change:
        rate = self.learner.learning_rate
        before = {"lr": rate.rate}
        rate.slow_down(times)
        return Change("the learning rate is lowered", before, {"lr": rate.rate})

    def label_more(self) -> Change | None:
        if self.refresher is None:
            return None
        before = {"label_more": self.orders.label_more}
        if self.collector.in_rounds:
            self.orders.label_more = max(self.orders.label_more, MORE_LABELS)
            several = len(self.refresher.ensemble.members) > 1
            words = "more labels in the next round" + (", where members disagree" if several else "")
        else:
            words = "more labels were wanted, and nobody labels in the rounds of this run"
        return Change(words, before, {"label_more": self.orders.label_more})

    def refresh(self, reason: str) -> Change | None:
        """A refresh in the next round, whatever its triggers say."""
        if self.refresher is None:
            return self._correct()
        before = {"refresh": self.orders.refresh}
        self.orders.refresh = f"the guard asked for it: {reason}"
        return Change("the ensemble is refreshed in the next round", before, {"refresh": self.orders.refresh})

    def _correct(self) -> Change | None:
        """The corrective of a reward that is given, made of all audit labels so far, at once."""
        reward = self.learner.reward
        corrective = reward.corrective if isinstance(reward, GivenReward) else None
        if corrective is None:
            return None
        before = {"corrective": corrective.labels}
        words = corrective.train(self.collector.store.watermark())
        self.learner.plateau.reset()  # scores with and without it are not one curve
        return Change(words, before, {"corrective": corrective.labels})

    def discount(self, component: str, factor: float) -> Change | None:
        """A component counts for less than it did, or the reward as a whole; an ensemble has no components."""
        reward = self.learner.reward
        if not isinstance(reward, GivenReward):
            return None
        done = reward.discount(component, factor)
        if done is None:
            return None
        what = f"the {self.terms.part} {done.component!r}" if done.component else self.terms.reward
        words = f"{what} counts {done.after:.3g} times what it did at first"
        return Change(words, {"share": done.before}, {"share": done.after})

    def adversarial(self, good: Good) -> Change | None:
        if self.refresher is None:
            return None
        store, count = self.collector.store, AuditPlan(self.learner.config.audit).adversarial
        before = {"labels": store.watermark()}
        labelled = self.collector.collect_adversarial(
            self.round, count, self.policy, self.anchor, good.name, self.sample
        )
        words = f"{counted(labelled, 'hacked answer')} labelled beside good ones"
        return Change(words, before, {"labels": store.watermark()})

    def event(self, kind: str, **fields: object) -> None:
        self.learner.journal.event(kind, **fields)

    def say(self, line: str) -> None:
        self.learner.journal.progress.say(line)

    def pin_good(self) -> None:
        """Pin the last good checkpoint, and no other, once it is on disk."""
        good, pinned = self.review.good.name, self.checkpoints.pinned
        if good not in pinned:
            self.checkpoints.pin(good)
        for other in pinned - {good}:
            self.checkpoints.unpin(other)

    def find_anchor(self, loaded: Loaded) -> str:
        """Take the anchor out of its checkpoint again, or the sound one nearest to it, and a sentence that says so."""
        good = self.review.good
        try:
            self._take_anchor(good, self.checkpoints.load(good.name))
            return ""
        except HoldfastError as error:
            fault = error.__cause__ or error
        sound = {loaded.name: loaded.snapshot}
        for name in self.checkpoints.names():
            with suppress(HoldfastError):
                snapshot = self.checkpoints.load(name)
                self.state.check(snapshot)
                sound.setdefault(name, snapshot)
        places = [good_at(name, snapshot) for name, snapshot in sound.items()]
        nearest = min(places, key=lambda place: abs(place.step - good.step))
        self._take_anchor(nearest, sound[nearest.name])
        return f"The last good checkpoint cannot be used, and {nearest.name} takes its place: {fault}"

    def _take_anchor(self, good: Good, snapshot: Snapshot) -> None:
        put_state(self.anchor, snapshot.tensors["policy"])
        self.review.good = good
