"""A trainer over HTTP as a host of the guard.

posted answers -> baselines, signals                                               (see)
fresh pairs -> labeller -> verdict -> ladder -> advice -> the client's report      (by the review)

This host changes nothing itself: what the guard decides is an advice, and the review waits until the client says what
it has done about it. Events tell the two apart: `advised`, then `action`, `rollback` or `declined` in its own words.

Shapes: B answers, T words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, cast

import torch
from torch import Tensor

from holdfast.control.schedule import SLOWER
from holdfast.events import event_line
from holdfast.guard.course import Terms
from holdfast.guard.host import Change, Good, view_of
from holdfast.guard.ladder import DISCOUNT, Action
from holdfast.guard.review import Review
from holdfast.guard.signals import SIGNALS
from holdfast.guard.trust import AskedAgain
from holdfast.guard.verdict import Verdict
from holdfast.guard.view import StepView
from holdfast.preferences.collector import Sample
from holdfast.reward.source import Scored
from holdfast.rollout.sampler import Rollout
from holdfast.serving.guard.answers import AuditAnswers, Who
from holdfast.serving.guard.desk import GuardDesk
from holdfast.serving.guard.posts import PostedAnswer
from holdfast.serving.guard.records import Settled
from holdfast.serving.guard.stream import AnswerStream, TrainerMoment
from holdfast.statistics import Share
from holdfast.track.tracker import Tracker

TERMS = Terms(rate="the learning rate", length="the longest answer", reward="the reward")
# What of an action is the client's to do; the rest belongs to a reward that learns, and is left out.
ADVISED = ("rollback", "tighten", "slow_down", "discount", "stop")
# Signals that need what a client may not send, or cannot.
FROM_LOGPROBS = ("entropy", "self_perplexity", "confidence_gap")
FROM_KL = ("kl_per_answer", "kl_per_token")
FROM_UPDATES = tuple(name for name, signal in SIGNALS.items() if signal.family == "update")


@dataclass
class ServiceHost:
    """What a review asks of a trainer over HTTP. `moment` is where the trainer was at the newest step that was read."""

    review: Review[Who]
    answers: AuditAnswers
    desk: GuardDesk
    stream: AnswerStream
    tracker: Tracker
    say: Callable[[str], None]
    tell: Callable[[dict[str, Any]], None]
    round: int = 1
    step: int = 0
    last: bool = False
    kl: float = 0.0
    moment: TrainerMoment = TrainerMoment()
    baselines: list[StepView] = field(default_factory=list)
    discounts: dict[str, float] = field(default_factory=dict)  # by component, as the client has reported them done
    unread: Mapping[str, str] = field(default_factory=dict)  # signals that the baselines' answers cannot show, and why

    policy: Who = "policy"
    reference: Who = "reference"
    anchor: Who = "anchor"
    refreshes_at_once = True
    terms = TERMS
    fit: Share | None = None

    def again(self) -> dict[str, AskedAgain]:
        """Nobody is asked a second time here."""
        return {}

    @property
    def sample(self) -> Sample[Who]:
        return self.answers.sample

    # ---- what the signals read

    def baseline(self, rng: torch.Generator) -> StepView:
        """The next of the batches that were posted for this."""
        return self.baselines.pop(0)

    def learn_known(self) -> None:
        """The reward here has learnt from no labels that anybody knows of."""

    def see(self, answers: Sequence[PostedAnswer], moment: TrainerMoment) -> None:
        """Let the signals read a step."""
        self.step, self.moment = self.step + 1, moment
        scored, view = self.seen(answers)
        readings = self.review.guard.see(view)
        kls = [each.kl for each in answers if each.kl is not None]
        if kls:
            self.kl = sum(kls) / len(kls)
        unread = {f"signal/{name}" for name in unread_in(answers)}
        numbers = {name: value for name, value in readings.items() if name not in unread}
        tokens = [each.tokens for each in answers if each.tokens is not None]
        lengths = {"response/length_mean": sum(tokens) / len(tokens)} if tokens else {}
        distance = {"objective/kl": self.kl} if kls else {}
        self.tracker.metrics(self.step, self.round, {**numbers, **scored.metrics(), **lengths, **distance})

    def seen(self, answers: Sequence[PostedAnswer]) -> tuple[Scored, StepView]:
        """A batch as the signals see it; log-probs are those of whole answers, spread evenly over the words."""
        rollout = self.answers.rollout(answers)
        given_B = _column([each.reward for each in answers])
        names = dict.fromkeys(name for each in answers for name in each.components)
        parts = {name: _column([each.components.get(name) for each in answers]) for name in names}
        unscored = {row: "no reward" for row, each in enumerate(answers) if each.reward is None}
        scored = Scored(
            torch.zeros(1, len(answers)), given_B, given_B, torch.zeros(0, 1), version=1, labels=0, given_B=given_B,
            components=parts, unscored=unscored,
        )  # fmt: skip
        kl_B, logprob_B = _column([each.kl for each in answers]), _column([each.logprob for each in answers])
        # Of a client that knows the KL alone nothing else can be read; what can is the difference.
        logprob_B = torch.where(logprob_B.isnan() & ~kl_B.isnan(), 0.0, logprob_B)
        logprobs_BT, kl_BT = _spread(rollout, logprob_B), _spread(rollout, kl_B)
        learned = {"objective/scores": scored.metrics()["objective/scores"]}
        return scored, view_of(rollout, scored, logprobs_BT - kl_BT, learned, logprobs_BT)

    # ---- what is decided, and what becomes of it

    def decided(self, verdict: Verdict, actions: Sequence[Action]) -> None:
        """Tell the client the verdict, with all that it is advised to do."""
        advised = [self.advice(action) for action in actions if action.rung in ADVISED]
        self.tell({"round": self.round, "level": verdict.level, "sentence": verdict.sentence, "advised": advised})
        for advice in advised if self.review.acts else ():
            self.event("advised", **{key: advice[key] for key in ("id", "do", "words", "reason")})
            if advice["do"] != "stop":
                self.desk.advise(advice["id"], advice)

    def advice(self, action: Action) -> dict[str, Any]:
        """An action as the client is told of it."""
        words, more = "", dict[str, Any]()
        match action.rung:
            case "rollback":
                words, more = f"go back to {self.place_words()}", {"to": self.answers.place or {"step": 0}}
            case "tighten":
                words = "multiply the KL coefficient by the factor; where there is none, switch one on"
                more = {"factor": self.review.config.beta_factor**action.times}
            case "slow_down":
                words, more = "multiply the learning rate by the factor", {"factor": SLOWER**action.times}
            case "discount":
                what = (
                    f"the weight of the reward's component {action.component!r}" if action.component else "the reward"
                )
                words, more = f"multiply {what} by the factor", {"component": action.component, "factor": DISCOUNT}
            case "stop":
                words = "stop, and have a person look"
        return {"id": self.id_of(action.rung), "do": action.rung, "words": words, "reason": action.reason, **more}

    def id_of(self, rung: str) -> str:
        """Of each rung there is one at most in a round."""
        return f"r{self.round:04d}-{rung}"

    def place_words(self) -> str:
        """The last good policy, as the trainer knows it."""
        place = self.answers.place
        if not place:
            return "the beginning of the training"
        checkpoint = f", checkpoint {place['checkpoint']}" if place.get("checkpoint") else ""
        return f"step {place['step']}{checkpoint}"

    def outcome(self, rung: str) -> Settled | None:
        """What the client did about an action, once it says so; None where it declined."""
        settled = self.desk.outcome(self.id_of(rung))
        if settled.report["done"]:
            return settled
        self.event("declined", id=self.id_of(rung), note=str(settled.report["note"]))
        return None

    def keep_good(self) -> Good:
        if self.answers.keeps("anchor") and not self.last:
            self.answers.keep("anchor")
        step = self.step if self.moment.step is None else self.moment.step
        self.answers.place = {"step": step, "checkpoint": self.moment.checkpoint}
        return Good(f"round-{self.round:04d}", self.round, self.step, self.kl)

    def roll_back(self, good: Good) -> dict[str, Any] | None:
        """Wait until the client has gone back; what came in before that is of the policy that is gone."""
        settled = self.outcome("rollback")
        if settled is None:
            return None
        skipped = self.stream.skip_to(settled.seq)
        return {"step_from": self.step, "reported": dict(settled.report), "answers_skipped": skipped}

    def tighten(self, beta_factor: float, target_factor: float, floor: float) -> Change | None:
        return self._reported("tighten", "the trainer reports that the policy is held closer to the reference")

    def slow_down(self, times: int) -> Change | None:
        return self._reported("slow_down", "the trainer reports a lower learning rate")

    def discount(self, component: str, factor: float) -> Change | None:
        what = f"that the component {component!r} counts" if component else "that the reward counts"
        change = self._reported("discount", f"the trainer reports {what} for less")
        if change is not None:
            self.discounts[component] = factor * self.discounts.get(component, 1.0)
        return change

    def _reported(self, rung: str, words: str) -> Change | None:
        settled = self.outcome(rung)
        return None if settled is None else Change(words, settled.report["before"], settled.report["after"])

    def label_more(self) -> None:
        """A trainer of somebody else's collects no comparisons to label more of."""

    def refresh(self, reason: str) -> None:
        """The reward is the trainer's own."""

    def adversarial(self, good: Good) -> None:
        """Nothing here learns from hacked answers."""

    def event(self, kind: str, **fields: object) -> None:
        """Write down what happened, and say it where it matters to whoever watches."""
        if kind == "baselines":
            left_out = {f"signal/{name}": why for name, why in self.unread.items()}
            fields["left_out"] = {**cast(dict[str, str], fields.get("left_out", {})), **left_out}
        self.tracker.event(self.step, self.round, kind, **fields)
        line = event_line(kind, self.round, fields)
        if line is not None:
            self.say(line)

    # ---- what moves

    def state(self) -> dict[str, Any]:
        return {
            "review": self.review.state(),
            "round": self.round,
            "step": self.step,
            "kl": self.kl,
            "moment": asdict(self.moment),
            "place": dict(self.answers.place),
            "kept": dict(self.answers.kept),
            "discounts": dict(self.discounts),
            "stream": self.stream.state(),
            "tracker": self.tracker.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.review.restore(state["review"])
        self.round, self.step, self.kl = int(state["round"]), int(state["step"]), float(state["kl"])
        self.moment = TrainerMoment(**state["moment"])
        self.answers.place, self.answers.kept = dict(state["place"]), dict(state["kept"])
        self.discounts = dict(state["discounts"])
        self.stream.restore(state["stream"])
        self.tracker.restore(state["tracker"])


def unread_in(answers: Sequence[PostedAnswer]) -> dict[str, str]:
    """The signals that these answers cannot show, with what they need."""
    sure, far = any(each.logprob is not None for each in answers), any(each.kl is not None for each in answers)
    return {
        **dict.fromkeys(FROM_UPDATES, "the trainer's own updates"),
        **({} if sure else dict.fromkeys(FROM_LOGPROBS, "the policy's log-probs")),
        **({} if far else dict.fromkeys(FROM_KL, "log-probs of policy and reference, or the KL")),
    }


def _column(values: Sequence[float | None]) -> Tensor:
    """values_B, NaN where there is none."""
    return torch.tensor([math.nan if value is None else value for value in values], dtype=torch.float32)


def _spread(rollout: Rollout, sums_B: Tensor) -> Tensor:
    """sums_B spread evenly over each answer's words, 0 outside."""
    lengths_B = rollout.mask_BT.sum(1).clamp(min=1)
    return torch.where(rollout.mask_BT, (sums_B / lengths_B)[:, None].float(), 0.0)
