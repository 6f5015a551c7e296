"""The guard over a trainer that is not ours, from the first step of its training to the last.

reference answers -> baselines                                              (begin)
a step's completions, kl and entropy -> signals, KL controller -> beta      (see)
fresh pairs -> labeller -> verdict -> ladder -> actions on the trainer      (audit, by the review)

All judgement is `guard.review.Review`'s, as in our own loop; here is only what it takes to carry it to the trainer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from holdfast.control.kl import FixedKL, KLController
from holdfast.control.schedule import SLOWER
from holdfast.events import event_line
from holdfast.guard.claimant import ScalarClaimant
from holdfast.guard.course import Terms
from holdfast.guard.host import Change, Good, floored, view_of
from holdfast.guard.plan import AuditPlan
from holdfast.guard.review import Outcome, Review, win_rate
from holdfast.guard.trust import AskedAgain
from holdfast.guard.view import StepView
from holdfast.interop.trl.answers import Player, per_token
from holdfast.interop.trl.draws import TrainerAnswers
from holdfast.interop.trl.hands import Hands
from holdfast.interop.trl.readings import FunctionsReading, RewardReading
from holdfast.interop.trl.refresher import EnsembleTeacher
from holdfast.preferences.collector import Sample
from holdfast.preferences.store import PreferenceStore
from holdfast.reward.source import Scored
from holdfast.rollout.sampler import Rollout
from holdfast.statistics import Share
from holdfast.text import counted
from holdfast.track.tracker import Tracker

# The beta that a policy is held with where it was not held at all: what TRL's own default was before it became 0.
BETA_FROM_ZERO = 0.04
BEGINNING = "round-0000"


@dataclass(frozen=True)
class Batch:
    """A generation as the reward functions met it: answers, scores, and the policy's own count of their tokens."""

    rollout: Rollout
    scored: Scored
    tokens: Sequence[int]


@dataclass
class TrainerHost:
    """Everything that exists once training has begun. `round` counts audits; `audited` is the step of the last one.

    `hands` do what is done to the trainer, in every process. `teacher` is there for an ensemble alone.
    """

    hands: Hands
    review: Review[Player]
    controller: KLController
    answers: TrainerAnswers
    store: PreferenceStore
    tracker: Tracker
    teacher: EnsembleTeacher | None
    say: Callable[[str], None]
    rounds: int
    round: int = 1
    audited: int = 0
    last: bool = False  # whether the review under way is the run's last
    kl: float = 0.0  # of the newest step to the reference, in nats per answer

    refreshes_at_once = True

    @property
    def trainer(self) -> Any:
        return self.hands.trainer

    @property
    def reading(self) -> RewardReading:
        return self.answers.reading

    @property
    def policy(self) -> Player:
        return self.hands.policy

    @property
    def reference(self) -> Player:
        return self.hands.reference

    @property
    def anchor(self) -> Player:
        return self.hands.anchor

    @property
    def step(self) -> int:
        return int(self.trainer.state.global_step)

    @property
    def terms(self) -> Terms:
        return self.reading.terms

    @property
    def fit(self) -> Share | None:
        return self.reading.fit

    def again(self) -> dict[str, AskedAgain]:
        """Nobody is asked a second time here."""
        return {}

    @property
    def sample(self) -> Sample[Player]:
        return self.answers.sample

    def begin(self) -> None:
        """Baselines from the reference's answers, in batches like the trainer's own; the beginning is kept."""
        self._keep(self.review.good.name)
        self.review.begin(self)

    def baseline(self, rng: torch.Generator) -> StepView:
        args, prompts = self.trainer.args, list(self.answers.places)
        group = int(args.num_generations)
        rows = torch.randint(len(prompts), (max(1, int(args.generation_batch_size) // group),), generator=rng)
        asked = [list(prompts[i]) for i in rows.tolist() for _ in range(group)]
        rollout = self.answers.sample(self.reference, asked, rng)
        return view_of(rollout, self.reading.of_drawn(rollout), rollout.logprobs_BT, {})

    def see(self, batch: Batch, metrics: Mapping[str, float]) -> None:
        """Let the signals read a step, and the controller set the next one's beta."""
        rollout, tokens_B = batch.rollout, torch.tensor(batch.tokens, dtype=torch.float32)
        # The trainer's kl and entropy are means over the policy's tokens.
        kl, entropy = (metrics.get(name, math.nan) for name in ("kl", "entropy"))
        logprobs_BT = -per_token(rollout, entropy * tokens_B)
        reference_BT = logprobs_BT - per_token(rollout, kl * tokens_B)
        learned = {"objective/scores": batch.scored.metrics()["objective/scores"]}
        if "clip_ratio/region_mean" in metrics:
            learned["policy/clipfrac_avg"] = metrics["clip_ratio/region_mean"]
        readings = self.review.guard.see(view_of(rollout, batch.scored, reference_BT, learned, logprobs_BT))
        kl_answer = kl * float(tokens_B.mean())
        if math.isfinite(kl_answer):
            self.kl = kl_answer
            self.controller.update(kl_answer, len(tokens_B), self.reading.labels)
        numbers = {name: value for name, value in batch.scored.metrics().items() if math.isfinite(value)}
        known = {"objective/kl": kl_answer, "objective/entropy": entropy * float(tokens_B.mean())}
        numbers |= {name: value for name, value in known.items() if math.isfinite(value)}
        self.tracker.metrics(self.step, self.round, {**numbers, **readings, "control/beta": self.controller.beta})

    def audit(self, last: bool) -> bool:
        """The guard's review of the steps since the last one; whether training is to stop."""
        self.last = last
        outcome = self.review.conduct(self)
        self._log(outcome)
        self.round, self.audited = self.round + 1, self.step
        return self.review.stopped

    def learn_known(self) -> None:
        if self.teacher is not None:
            self.teacher.learn_known(self.review.guard)

    def keep_good(self) -> Good:
        good = Good(self.free_name(f"round-{self.round:04d}"), self.round, self.step, self.kl)
        self._keep(good.name)
        self.hands.do("keep_anchor")
        return good

    def _keep(self, name: str) -> None:
        """Put the trainer, as it is now, where a rollback finds it."""
        version = 0 if self.teacher is None else self.teacher.version
        documents = {"controller": self.controller.state(), "ensemble": {"version": version}}
        self.hands.do("keep", name=name, documents=documents)

    def roll_back(self, good: Good) -> dict[str, Any]:
        """Back to the last good policy, with everything that moves along with it; steps go on."""
        documents: Any = self.hands.kept.load(good.name).documents
        if self.teacher is not None:
            self.teacher.go_back(int(documents["ensemble"]["version"]))
        self.hands.do("go_back", name=good.name)
        self._steer(documents["controller"])
        return {"step_from": self.step}

    def _steer(self, state: Mapping[str, Any]) -> None:
        """The controller as it was, and beta as it says."""
        self.controller.restore(state)
        self.hands.do("hold", beta=self.controller.beta)

    def tighten(self, beta_factor: float, target_factor: float, floor: float) -> Change:
        """Raise beta on the live trainer, and lower the KL that is aimed at where there is a target.

        Where beta was 0 it is switched on, with the beginning as the reference model; where that cannot be done the
        learning rate is divided by what beta would have been multiplied by.
        """
        if not self.hands.can_hold:
            return self._slow(1.0 / beta_factor, "beta cannot be raised from 0 here, so the learning rate is lowered")
        before = {"beta": float(self.trainer.beta), "kl_target": self.controller.target}
        if self.controller.beta == 0.0:
            self.controller = FixedKL(BETA_FROM_ZERO * beta_factor)
        else:
            self.controller.tighten(beta_factor, floored(self.controller.target, target_factor, floor))
        self.hands.do("hold", beta=self.controller.beta)
        after = {"beta": float(self.trainer.beta), "kl_target": self.controller.target}
        return Change("the policy is held closer to the reference", before, after)

    def slow_down(self, times: int) -> Change:
        """Lower the learning rate of the live trainer, and that of its scheduler."""
        return self._slow(SLOWER**times, "the learning rate is lowered")

    def _slow(self, factor: float, words: str) -> Change:
        before = {"lr": self._rates()}
        self.hands.do("slow", factor=factor)
        return Change(words, before, {"lr": self._rates()})

    def _rates(self) -> float:
        """The highest learning rate of the live trainer."""
        return max(float(group["lr"]) for group in self.trainer.optimizer.param_groups)

    def label_more(self) -> None:
        """A trainer of somebody else's collects no comparisons to label more of."""

    def refresh(self, reason: str) -> Change | None:
        """Train the ensemble on the audit's labels, which have measured before they train."""
        if self.teacher is None or not self.teacher.wanted:
            return None
        before = {"version": self.teacher.version}
        outcome = self.teacher.refresh(self.round + 1, self.step)
        if outcome is None:
            self.event("refresh_skipped", reason=f"{reason}, but there are no new labels")
            return Change("there are no new labels to refresh the ensemble on", before, before)
        self.learn_known()
        self.event("refresh", reason=reason, **outcome.refresh_event())
        return Change("the ensemble was refreshed on the audits' labels", before, {"version": self.teacher.version})

    def discount(self, component: str, factor: float) -> Change | None:
        """Lower the weight of the reward function that is hacked; one alone cannot count for less than itself."""
        reading = self.reading
        if not isinstance(reading, FunctionsReading) or component not in reading.names or len(reading.names) < 2:
            return None
        place, before = reading.names.index(component), self._weights()
        weights = [weight * factor if n == place else weight for n, weight in enumerate(before)]
        self.hands.do("weigh", weights=weights)
        reading.claimant.made += 1  # its claims are those of another reward from now on
        named = [dict(zip(reading.names, each, strict=True)) for each in (before, self._weights())]
        return Change(
            f"the reward function {component!r} counts for less", {"weights": named[0]}, {"weights": named[1]}
        )

    def _weights(self) -> list[float]:
        """Of the reward functions, as the live trainer has them."""
        return [float(weight) for weight in self.trainer.reward_weights.tolist()]

    def adversarial(self, good: Good) -> Change | None:
        """Hacked answers beside good ones, labelled, where the ensemble learns from labels at all."""
        if self.teacher is None or not self.teacher.wanted:
            return None
        before, count = {"labels": self.store.watermark()}, AuditPlan(self.review.audits).adversarial
        labelled = self.review.auditor.collector.collect_adversarial(
            self.round, count, self.policy, self.anchor, good.name, self.answers.sample
        )
        words = f"{counted(labelled, 'hacked answer')} labelled beside good ones"
        return Change(words, before, {"labels": self.store.watermark()})

    def free_name(self, name: str) -> str:
        """A run that was resumed from further back keeps what its other future has kept."""
        taken, number = set(self.hands.kept.names()), 1
        while (free := name if number == 1 else f"{name}.{number}") in taken:
            number += 1
        return free

    def close(self) -> None:
        """Let go of files and labels."""
        self.tracker.close()
        self.store.close()

    def event(self, kind: str, **fields: object) -> None:
        """Write down what happened, and say it where it matters to whoever watches."""
        self.tracker.event(self.step, self.round, kind, **fields)
        line = event_line(kind, self.round, fields)
        if line is not None:
            self.say(line)

    def _log(self, outcome: Outcome) -> None:
        """The audit among the trainer's own metrics, for whatever it reports to."""
        logged = getattr(self.trainer, "_metrics", {}).get("train")
        if logged is None:
            return
        kinds = ("reference", "anchor", "pointed")
        numbers = {f"holdfast/win_rate_{name}": win_rate(outcome.audited, name) for name in kinds}
        for name in ("suspicion_p", "evidence"):
            value = outcome.verdict.evidence.get(name)
            numbers[f"holdfast/{name}"] = float(value) if isinstance(value, int | float) else None
        for name, number in numbers.items():
            if number is not None:
                logged.setdefault(name, []).append(number)

    def state(self) -> dict[str, Any]:
        """Everything that moves, as JSON; weights of the last good policy are in its checkpoint."""
        claimant = self.reading.claimant
        return {
            "review": self.review.state(),
            "controller": self.controller.state(),
            "teacher": None if self.teacher is None else self.teacher.state(),
            "weights": self._weights(),
            "made": claimant.made if isinstance(claimant, ScalarClaimant) else 0,
            "rounds": self.rounds,
            "round": self.round,
            "audited": self.audited,
            "kl": self.kl,
            "tracker": self.tracker.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave; a run that had stopped to ask is allowed to go on."""
        self.review.restore(state["review"])
        self.hands.do("load", player="anchor", name=self.review.good.name)
        self._steer(state["controller"])
        self.hands.do("weigh", weights=state["weights"])
        if isinstance(self.reading.claimant, ScalarClaimant):
            self.reading.claimant.made = int(state["made"])
        if self.teacher is not None:
            self.teacher.restore(state["teacher"])
        self.learn_known()
        self.round, self.audited, self.kl = int(state["round"]), int(state["audited"]), float(state["kl"])
        self.tracker.restore(state["tracker"])
        if self.review.stopped:
            self.review.grant()
        self.event("resumed", checkpoint=f"checkpoint-{self.step}")
