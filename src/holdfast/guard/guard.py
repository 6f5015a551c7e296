"""The guard: the one object that the loop holds.

    begin    batches of the reference -> baselines
    see      a step's batch -> readings
    judge    the round's readings against the baselines, and people's answers against the claims -> verdict
    close_round    readings of a round that can be trusted join the baselines

It holds no models, and its memory goes on through rollbacks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from holdfast.checkpoint.files import JSON
from holdfast.config.schema import GuardConfig
from holdfast.errors import HoldfastError
from holdfast.guard.alarm import Against, AlarmTest, Evidence
from holdfast.guard.attribution import attribution
from holdfast.guard.audit import AuditPair, AuditReport, audit
from holdfast.guard.baseline import Baseline, Reading
from holdfast.guard.claims import UNCLAIMED, Granted
from holdfast.guard.course import Course, Step, Terms, step_from, step_state
from holdfast.guard.grams import lay_flat
from holdfast.guard.judged import JudgedRound
from holdfast.guard.signal import Signal, read_all
from holdfast.guard.signals import SIGNALS
from holdfast.guard.suspicion import Suspicion, suspicion_of
from holdfast.guard.trust import AskedAgain, Habits, added, habits_of, habits_state, trust_in
from holdfast.guard.verdict import Verdict, decide
from holdfast.guard.view import Known, StepView
from holdfast.preferences.labeller import SOMEBODY
from holdfast.statistics import Share

# Batches without which a spread is no more than a guess.
LEAST_BATCHES = 2
NOTHING_KNOWN = Known(torch.zeros(1, dtype=torch.int64), torch.zeros(0, 1))


class Guard:
    """Signals, baselines, audit and sequential test of one run of `rounds` planned rounds.

    Of the settings only `false_alarm` counts here; the others are for whoever acts on the verdicts. Signals that
    compare with what has been labelled read nothing until `know` has been told of it.
    """

    def __init__(
        self,
        config: GuardConfig,
        rounds: int,
        bar: float | None = None,
        signals: Mapping[str, Signal] = SIGNALS,
        *,
        of_start: bool = False,
        judged: bool = False,
    ) -> None:
        if rounds < 1:
            raise HoldfastError(f"The guard is for {rounds} rounds; plan at least 1.")
        self._config, self._signals = config, signals
        self._baselines = {name: Baseline(signal, of_start=of_start) for name, signal in signals.items()}
        self._rounds = rounds
        self._test = AlarmTest(config.false_alarm, rounds, bar, judged)
        self._known = NOTHING_KNOWN
        self._round = 1
        self._healthy_steps = 0  # steps whose readings have joined the baselines: their clock
        self._steps: list[Step] = []  # what the steps of this round came to
        self._readings: dict[str, list[Reading]] = {}
        self._recent: dict[str, list[float]] = {}  # what derived signals are made from
        self._judged: AuditReport | None = None
        self._answers: dict[str, Habits] = {}  # how each labeller has answered in the rounds before
        self._answers_now: dict[str, Habits] = {}
        self.miscalibrated = False  # by the last round that was judged
        self.heard = False  # whether people have answered in any round
        self.begun = False

    def know(self, responses: Sequence[Sequence[int]], features_MD: Tensor, vocabulary: int) -> None:
        """What has been labelled, as the ensemble in use sees it; said at the start and after every refresh."""
        counts_V = torch.bincount(lay_flat(responses)[0], minlength=vocabulary)
        self._known = Known(counts_V, features_MD)

    def begin(self, views: Sequence[StepView]) -> None:
        """Baselines from batches of the reference's answers, each as large as those to come."""
        if len(views) < LEAST_BATCHES:
            raise HoldfastError(
                f"The guard was given {len(views)} batches of the reference's answers; "
                f"it needs at least {LEAST_BATCHES} to know what is usual."
            )
        for view in views:
            for name, value in self._read(replace(view, of_reference=True)).items():
                self._baselines[name].add_reference(value)
        self._recent, self.begun = {}, True

    def usual(self) -> dict[str, dict[str, float]]:
        """What every signal reads in the reference's own answers, by the names of metrics: mean and spread."""
        usual = {self._signals[name].metric: baseline.of_reference() for name, baseline in self._baselines.items()}
        return {name: {"mean": pair[0], "sd": pair[1]} for name, pair in usual.items() if pair is not None}

    def left_out(self) -> dict[str, str]:
        """The signals that read nothing in the reference's answers for what they need and is not there, with that."""
        return {
            self._signals[name].metric: self._signals[name].needs
            for name, baseline in self._baselines.items()
            if self._signals[name].needs and self.begun and not len(baseline)
        }

    def see(self, view: StepView) -> dict[str, float]:
        """Read a step; the readings, by the names of metrics."""
        if not self.begun:
            raise HoldfastError("The guard does not know yet what is usual: call begin() with the reference's answers.")
        self._steps.append(Step.of(view))
        readings = self._read(view)
        for name, value in readings.items():
            self._readings.setdefault(name, []).append((self._healthy_steps + len(self._steps), value))
        return {self._signals[name].metric: value for name, value in readings.items()}

    def _read(self, view: StepView) -> dict[str, float]:
        """What every signal says of a batch."""
        readings, self._recent = read_all(self._signals, view, self._known, self._recent)
        return readings

    def suspicion(self) -> Suspicion:
        """How unusual the round's steps are so far."""
        deviations = {name: self._baselines[name].compare(readings) for name, readings in self._readings.items()}
        return suspicion_of(self._signals, {name: each for name, each in deviations.items() if each is not None})

    def judge(
        self,
        pairs: Sequence[AuditPair],
        labels_left: int | None,
        ensemble: int,
        answered_by: str = SOMEBODY,
        *,
        fit: Share | None = None,
        again: Mapping[str, AskedAgain] | None = None,
        terms: Terms | None = None,
        good_kl: float = math.inf,
        judged: Mapping[Against, JudgedRound] | None = None,
    ) -> Verdict:
        """The verdict on the round, from all its audit pairs; asked again with more, it starts from those.

        `ensemble` is the version that made the claims, 0 where nothing is claimed yet; `fit` is how right it is about
        the pairs it was trained on;
        `answered_by` is what the sentence calls those who answered, and `again` how they answered what they were asked
        a second time; `terms` are the names of settings that advice is about, `good_kl` is the last good policy's KL;
        `judged` is what a judge said beside them, which counts in the sequential test alone.
        """
        report, trust = audit(pairs, ensemble != UNCLAIMED), trust_in(pairs, self._answers, again or {})
        for side in (report.reference, report.anchor, report.pointed):
            if side is not None:
                granted = Granted(side.wins, side.losses, side.claimed, ensemble)
                self._test.record(self._round, side.against, granted, (judged or {}).get(side.against))
        self._judged, self._answers_now = report, habits_of(pairs)
        if pairs:
            # Answers that cannot be trusted are no reason to think the claims wrong.
            self.heard, self.miscalibrated = True, report.miscalibrated and not trust.unreliable
        course = Course(tuple(self._steps), self.begun, good_kl, fit, terms or Terms())
        evidence, parts = self.evidence(), attribution(pairs)
        return decide(self.suspicion(), report, evidence, labels_left, answered_by, course, trust, parts)

    @property
    def stepped(self) -> bool:
        """Whether any step of the round stands, as far as is known."""
        return bool(self._steps) or not self.begun

    def has_claimed(self, ensemble: int) -> bool:
        """Whether this version of the ensemble made the claims of an earlier round."""
        return self._test.has_claimed(ensemble, before=self._round)

    @property
    def rounds_to_come(self) -> int:
        """Rounds after the present one, of those that were planned."""
        return max(0, self._rounds - self._round)

    def evidence(self) -> Evidence:
        """Where the sequential test stands."""
        return self._test.evidence()

    def audited(self) -> dict[str, JSON]:
        """The audit of the round that was judged last, as an event holds it."""
        return (self._judged or audit([])).record()

    def close_round(self, verdict: Verdict) -> None:
        """The round is over; if it can be trusted, what it looked like is usual from now on."""
        if verdict.trusted:
            for name, readings in self._readings.items():
                self._baselines[name].add_healthy(readings)
            self._healthy_steps += len(self._steps)
        self._answers, self._answers_now = added(self._answers, self._answers_now), {}
        self._forget_round()
        self._round += 1

    def after_rollback(self) -> None:
        """The policy is another one now: the evidence and the readings so far were of the one that was undone."""
        self._test.spend()
        self._forget_round()
        self._recent = {}

    def _forget_round(self) -> None:
        self._readings, self._steps = {}, []

    def state(self) -> dict[str, Any]:
        # In the order of the signals, so that equal guards are saved as equal bytes.
        return {
            "begun": self.begun,
            "heard": self.heard,
            "round": self._round,
            "healthy_steps": self._healthy_steps,
            "steps": [step_state(step) for step in self._steps],
            "answers": habits_state(self._answers),
            "miscalibrated": self.miscalibrated,
            "baselines": {name: baseline.state() for name, baseline in self._baselines.items()},
            "readings": {name: list(self._readings[name]) for name in self._signals if name in self._readings},
            "recent": {name: list(self._recent[name]) for name in self._signals if name in self._recent},
            "test": self._test.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Signals that the saved guard did not have begin with an empty baseline; those that are gone are dropped."""
        self.begun, self.heard, self.miscalibrated = state["begun"], state["heard"], state["miscalibrated"]
        self._round, self._healthy_steps = state["round"], state["healthy_steps"]
        self._steps = [step_from(step) for step in state["steps"]]
        self._answers = {name: Habits(*counts) for name, counts in state["answers"].items()}
        for name in self._signals.keys() & state["baselines"].keys():
            self._baselines[name].restore(state["baselines"][name])
        readings = {name: rows for name, rows in state["readings"].items() if name in self._signals}
        self._readings = {name: [(time, value) for time, value in rows] for name, rows in readings.items()}
        self._recent = {name: list(values) for name, values in state["recent"].items() if name in self._signals}
        self._test.restore(state["test"])
        self._judged = None
