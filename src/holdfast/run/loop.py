"""The online loop: policy and reward model both move.

    prompts -> policy -> comparisons -> labeller -> store                                (collect)
    store -> replay mix -> refresh -> ensemble version v+1                               (refresh_if_due)
    prompts -> policy -> responses -> ensemble - beta * KL -> credit -> update, n times  (step)
    policy, reference, last good policy -> fresh pairs -> people -> verdict -> actions   (watch_over)
    position, weights, optimisers, controllers, ledger, RNGs -> checkpoint               (commit)

Everything that moves is named in `restoring.capture`; a resumed run goes on bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import torch

from holdfast.algorithms.finite import all_finite
from holdfast.checkpoint.snapshot import Snapshot
from holdfast.checkpoint.store import CheckpointStore, Loaded
from holdfast.config import Config
from holdfast.control.kl import KLController
from holdfast.control.ledger import KLLedger
from holdfast.control.limit import KLLimit
from holdfast.control.plateau import Plateau
from holdfast.control.policy_mean import PolicyMean
from holdfast.control.schedule import Annealing, LearningRate
from holdfast.control.triggers import RefreshTriggers
from holdfast.errors import Interrupted
from holdfast.guard.lines import event_line
from holdfast.guard.review import Guarding, Orders
from holdfast.models.codec import Codec
from holdfast.models.policy import Policy
from holdfast.models.prompt import Prompt, plain_text
from holdfast.models.sharding import whole_state
from holdfast.preferences.collector import Collecting
from holdfast.probes.prober import Prober
from holdfast.randomness import Cursor, Streams, generator
from holdfast.reward.refresher import Refresher
from holdfast.reward.scoring import RewardSource, Scored
from holdfast.rollout.sampler import Rollout, Sampling, sample
from holdfast.rollout.served import ServedSampler
from holdfast.run.acting import recover
from holdfast.run.ending import take_mean
from holdfast.run.overseeing import begin_guard, keep_good, learn_known, see, watch_over
from holdfast.run.owner import Obeying, obey, stay_paused
from holdfast.run.probes import own_answers, probe_step
from holdfast.run.restoring import capture, resume
from holdfast.track.progress import Progress
from holdfast.track.tracker import Tracker
from holdfast.train.ppo import Experience, NonFiniteStep, PolicyOptimiser, response_values


@dataclass(frozen=True)
class Answer:
    """A sampled answer as people see it."""

    text: str
    finished: bool


class Observer(Protocol):
    """Someone who watches the loop and cannot touch it: the lab, which knows the truth, watches through this."""

    def after_step(self, step: int, round: int, prompts: Sequence[Prompt], answers: Sequence[Answer]) -> None: ...

    def after_samples(self, step: int, round: int, prompts: Sequence[Prompt], answers: Sequence[Answer]) -> None: ...

    def after_round(
        self, step: int, round: int, answer: Callable[[Sequence[Prompt], int], Sequence[Answer]]
    ) -> None: ...

    def rewind(self, step: int) -> None: ...


@dataclass
class Position:
    """Where the loop is. `round` is the one being worked on, from 1; `step` counts over the whole run.

    `audit_due` says that the round's steps are done and people are being asked about them. `tokens` counts what was
    sampled from the first round on, for whatever; observers and probes apart.
    """

    round: int = 1
    step: int = 0
    step_in_round: int = 0
    skipped: int = 0
    skipped_in_a_row: int = 0
    audit_due: bool = False
    tokens: int = 0


@dataclass
class OnlineLoop:
    """One noun per collaborator; `round` and `step` read like the algorithm."""

    config: Config
    codec: Codec
    prompts: Sequence[Prompt]
    fixed_prompts: Sequence[Prompt]
    policy: Policy
    reference: Policy
    ppo: PolicyOptimiser
    rewarding: RewardSource
    collecting: Collecting
    refreshing: Refresher
    controller: KLController
    limit: KLLimit
    learning_rate: LearningRate
    annealing: Annealing
    averaging: PolicyMean
    plateau: Plateau
    triggers: RefreshTriggers
    streams: Streams
    tracker: Tracker
    checkpoints: CheckpointStore
    progress: Progress
    guarding: Guarding[Policy] | None = None
    obeying: Obeying | None = None
    prober: Prober | None = None
    served: ServedSampler | None = None
    observers: Sequence[Observer] = ()
    stop_requested: Callable[[], bool] = lambda: False
    ledger: KLLedger = field(default_factory=KLLedger)
    position: Position = field(default_factory=Position)

    def __post_init__(self) -> None:
        self.prompt_ids = [self.codec.encode_prompt(p) for p in self.prompts]
        self.cursor = Cursor(len(self.prompts), self.config.run.seed, "prompts")
        self.timings: dict[str, float] = {}

    def run(self) -> None:
        """All rounds from where the loop stands."""
        rounds, steps = self.config.run.rounds, self.config.run.steps_per_round
        fresh = self.checkpoints.is_empty()
        if fresh:
            self.position.tokens = 0  # what stands before the rounds may be shared, and is counted apart
            self.show_samples()
            if self.prober is not None:
                stage = self.prober.stage
                self.prober.begin(self.policy, own_answers(self.config, self.codec, sampling_of(self.config), stage))
            self.commit("round-0000")
        begin_guard(self)
        if not fresh and not self.position.audit_due and obey(self):  # asked for while nobody was at work
            self.commit_now()
        stay_paused(self)
        self.progress.begin("ppo", max(0, (rounds - self.position.round + 1) * steps - self.position.step_in_round))
        while self.position.round <= rounds and not self.stopped:
            self.round()
        if not self.stopped:
            self.tracker.event(self.position.step, rounds, "run_finished")

    @property
    def stopped(self) -> bool:
        """Whether the guard has ended the run at its last good policy, and asks."""
        return self.guarding is not None and self.guarding.stopped

    def round(self) -> None:
        """Collect, label, maybe refresh; n PPO steps; audit, verdict, actions; commit."""
        at = self.position
        self.rewarding.set_round(at.round)
        if not at.audit_due:
            if at.step_in_round == 0:
                self.collect()
                self.refresh_if_due()
            self.steps()
            if self.averaging.ends_in_mean(at.round):
                take_mean(self)
            self.show_samples()
            self.event("round_finished", kl=self.ledger.reference, kl_round=self.ledger.round_total(at.round))
            self.commit_before_audit()
        name = f"round-{at.round:04d}"
        if watch_over(self, name) and self.averaging.wants(at.round):
            self.averaging.add(whole_state(self.policy))
        at.round, at.step_in_round, at.audit_due = at.round + 1, 0, False
        self.commit(name)
        self.stop_if_asked()
        stay_paused(self)

    def steps(self) -> None:
        """The round's PPO steps, fewer where KL has gone too far or an owner has asked for an audit."""
        at = self.position
        while at.step_in_round < self.config.run.steps_per_round:
            if at.step_in_round and self.obeying and self.obeying.ends_round():
                break
            self.step()
            if self.limit.exceeded(self.ledger.reference):
                self.event("kl_limit", kl=self.ledger.reference, limit=self.config.kl.hard_limit)
                break
            if at.step_in_round < self.config.run.steps_per_round:
                self.commit_within_round()

    def step(self) -> None:
        """One PPO batch: sample, score, assign credit, update, account."""
        at = self.position
        rows = [i for i in self.cursor.take(self.config.ppo.batch) for _ in range(self.config.ppo.samples_per_prompt)]
        with self.timed("sample"):
            rollout = self.sample(self.policy, [self.prompt_ids[i] for i in rows], self.streams["rollout"])
        with self.timed("score"):
            batches = self.ppo.batches(rollout)
            reference_BT = response_values(self.reference, rollout, batches, self.config.rollout.temperature)
            values_BT = self.ppo.values(rollout, batches)
            scored = self.rewarding.reward(rollout, self.streams["shaping"])
        at.step, at.step_in_round = at.step + 1, at.step_in_round + 1
        beta, lr = self.controller.beta, self.learning_rate.rate * self.annealing.at(at.step - 1)
        try:
            if not all_finite([scored.members_KB]):
                raise NonFiniteStep("a reward member's scores are not all numbers")
            experience = self.ppo.credit(rollout, reference_BT, values_BT, scored.rewards_B, beta)
            with self.timed("update"):
                learned, kl_step = self.ppo.learn(experience, batches, beta, lr, self.streams["minibatches"])
        except NonFiniteStep as reason:
            self.skip_step(str(reason))
            return
        at.skipped_in_a_row = 0
        kl = float(experience.kl_B.mean())
        self.ledger.record(at.step, at.round, kl_step, kl)
        self.controller.update(kl, len(rows), self.rewarding.ensemble.labels)
        self.pace(float(scored.scores_B.mean()))
        with self.timed("guard"):
            readings = see(self, experience, scored, {**learned, "objective/kl_step": kl_step})
        self.report_step(experience, scored, kl_step, beta, lr, {**learned, **readings})
        if self.prober is not None and self.prober.due(at.step):
            probe_step(self.prober, self.policy, experience, batches, self.config.rollout.temperature, at)
        for observer in self.observers:
            observer.after_step(at.step, at.round, [self.prompts[i] for i in rows], self.texts(rollout))

    def collect(self) -> None:
        """Have comparisons of the current policy's answers labelled and stored."""
        if self.position.step == 0:
            return  # The policy is still the reference, whose answers version 1 was trained on.
        orders = self.guarding.orders if self.guarding else Orders()
        more, orders.label_more = orders.label_more, 1.0
        round = self.position.round
        repeats = self.refreshing.to_repeat(round, self.streams.seed) if self.config.preferences.per_round else []
        collected = self.collecting.collect(round, self.policy, self.sample, self.streams, more, repeats)
        if collected:
            self.event("labels_collected", comparisons=collected, labels=collected, repeats=len(repeats))

    def refresh_if_due(self) -> None:
        """Fine-tune the ensemble where a trigger says so and no freeze forbids it."""
        at, state = self.position, self.refreshing
        kl_since = self.ledger.since(state.last_step)
        guard = self.guarding
        miscalibrated = guard is not None and guard.guard.miscalibrated
        reason = self.triggers.due(at.round, state.last_round, kl_since, state.settled, miscalibrated)
        if guard is not None and guard.orders.refresh and not self.triggers.frozen(at.round):
            reason, guard.orders.refresh = guard.orders.refresh, ""
        if reason is None:
            return
        was_in_use = self.rewarding.ensemble.version
        outcome = self.refreshing.refresh(at.round, at.step, self.streams)
        if outcome is None:
            self.event("refresh_skipped", reason=f"{reason}, but there are no new labels")
            return
        if outcome.in_use != was_in_use:
            # Scores of two versions are not one curve, so the plateau test starts afresh.
            self.plateau.reset()
            learn_known(self)
        self.event("refresh", reason=reason, **outcome.refresh_event())
        if self.config.gate.use:
            self.event("gate", **outcome.gate_event())

    def pace(self, score: float) -> None:
        """Advance the learning rate, and lower it when the policy has settled."""
        self.learning_rate.advance()
        self.plateau.add(score)
        if self.plateau.settled:
            self.learning_rate.settle()
            # Kept for the next round's refresh: the plateau test itself starts afresh below.
            self.refreshing.settled = True
            self.event("lr_decayed", lr=self.learning_rate.rate)
            self.plateau.reset()

    def skip_step(self, reason: str) -> None:
        """Count a step that met a value that is not a number; too many in a row take the run back, or end it."""
        at = self.position
        at.skipped, at.skipped_in_a_row = at.skipped + 1, at.skipped_in_a_row + 1
        self.event("step_skipped", reason=reason)
        self.tracker.metrics(at.step, at.round, {"steps/skipped": at.skipped})
        self.progress.advance()
        if at.skipped_in_a_row >= self.config.ppo.max_skipped:
            recover(self, f"{at.skipped_in_a_row} steps in a row met values that are not numbers ({reason})")
            learn_known(self)
            at.skipped_in_a_row = 0

    def report_step(
        self,
        experience: Experience,
        scored: Scored,
        kl_step: float,
        beta: float,
        lr: float,
        learned: Mapping[str, float],
    ) -> None:
        """One row of metrics, one of timings, one move of the progress bar."""
        at, rollout, target = self.position, experience.rollout, self.controller.target
        kl, reward = float(experience.kl_B.mean()), float(experience.rewards_B.mean())
        values = {
            **scored.metrics(),
            "objective/kl": kl,
            "objective/kl_step": kl_step,
            "objective/kl_round": self.ledger.round_total(at.round),
            "objective/kl_cumulative": self.ledger.spent,
            "objective/rlhf_reward": reward,
            "objective/non_score_reward": reward - float(scored.rewards_B.mean()),
            "objective/entropy": -float((rollout.logprobs_BT * rollout.mask_BT).sum(1).mean()),
            "control/beta": beta,
            **({} if target is None else {"control/kl_target": target}),
            "control/lr": lr,
            **learned,
            "response/length_mean": sum(rollout.lengths) / len(rollout.lengths),
            "response/length_max": float(max(rollout.lengths)),
            "response/unfinished": 1.0 - sum(rollout.finished) / len(rollout.finished),
            "response/distinct2": distinct_bigrams(rollout.responses),
            **({} if rollout.server_gap is None else {"rollout/server_gap": rollout.server_gap}),
            "steps/skipped": float(at.skipped),
        }
        self.tracker.metrics(at.step, at.round, values)
        self.tracker.timing(at.step, at.round, **self.timings)
        self.timings = {}
        self.progress.advance(
            round=at.round,
            score=values["objective/scores"],
            kl=kl,
            beta=beta,
            length=values["response/length_mean"],
        )

    def show_samples(self) -> None:
        """Answer the fixed prompts, with the same random numbers every time, and let observers measure."""
        at = self.position
        if self.fixed_prompts:
            ids = [self.codec.encode_prompt(p) for p in self.fixed_prompts]
            rollout = self.sample(self.policy, ids, generator(self.config.run.seed, "fixed samples"))
            scores_KB = self.rewarding.score(rollout)
            spreads = scores_KB.std(0, unbiased=False).tolist()
            told = zip(self.fixed_prompts, self.texts(rollout), scores_KB.mean(0).tolist(), spreads, strict=True)
            for i, (prompt, answer, score, spread) in enumerate(told):
                self.tracker.sample(
                    at.step, self.round_shown, prompt_index=i, prompt=plain_text(prompt),
                    response=answer.text, finished=answer.finished, score=score, spread=spread,
                )  # fmt: skip
            for observer in self.observers:
                observer.after_samples(at.step, self.round_shown, self.fixed_prompts, self.texts(rollout))
        self.let_observe()

    def let_observe(self) -> None:
        for observer in self.observers:
            observer.after_round(self.position.step, self.round_shown, self.answer)

    @property
    def round_shown(self) -> int:
        """The round whose result is being shown: 0 before the first step."""
        return self.position.round if self.position.step else 0

    def answer(self, prompts: Sequence[Prompt], seed: int) -> list[Answer]:
        """The current policy's answers, drawn with a seed of the caller's; the loop's own draws are not touched."""
        ids = [self.codec.encode_prompt(p) for p in prompts]
        return self.texts(self.sample(self.policy, ids, generator(seed, "answers"), counted=False))

    def texts(self, rollout: Rollout) -> list[Answer]:
        return [Answer(self.codec.decode(r), done) for r, done in zip(rollout.responses, rollout.finished, strict=True)]

    def sample(self, policy: Policy, prompts: list[list[int]], rng: torch.Generator, counted: bool = True) -> Rollout:
        """Answers to prompts; those for observers are not counted."""
        if self.served is not None and policy is self.policy:
            rollout = self.served.sample(policy, prompts, rng)
        else:
            rollout = sample(policy, prompts, sampling_of(self.config), self.codec.eos_id, self.codec.pad_id, rng)
        self.position.tokens += sum(rollout.lengths) if counted else 0
        return rollout

    def event(self, kind: str, **fields: object) -> None:
        """Write that something happened, and say so where somebody is watching."""
        self.tracker.event(self.position.step, self.position.round, kind, **fields)
        if line := event_line(kind, self.position.round, fields):
            self.progress.say(line)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.timings[phase] = self.timings.get(phase, 0.0) + time.perf_counter() - start

    def commit_within_round(self) -> None:
        """Save every n steps where the config says so, and whenever somebody has asked for something."""
        at, every = self.position, self.config.checkpoint.every_steps
        obeyed, stopping = obey(self), self.stop_requested()
        if obeyed or stopping or (every and at.step_in_round % every == 0):
            self.commit_now()
        self.stop_if_asked()
        stay_paused(self)

    def commit_before_audit(self) -> None:
        """Save before people are asked where that may take long or owners have changed something.

        What people are asked about must not change while they answer: a run that is stopped meanwhile goes on with the
        same questions, whatever owners ask for in between.
        """
        obeyed = obey(self)
        if self.obeying is not None:
            self.obeying.ends_round()  # asked for in the last step: this is the audit
        if obeyed or self.collecting.waits_for_people:
            self.position.audit_due = True
            self.commit_now()

    def commit_now(self) -> None:
        """Save where the loop stands within a round, or between two."""
        at = self.position
        within = f"round-{at.round:04d}-step-{at.step_in_round:04d}"
        self.commit(within if at.step_in_round else f"round-{at.round - 1:04d}")

    def stop_if_asked(self) -> None:
        """Right after a commit: leave, if the user wants to."""
        if self.stop_requested() and self.position.round <= self.config.run.rounds:
            raise Interrupted

    def commit(self, name: str) -> None:
        """Write a checkpoint that holds everything that moves."""
        self.checkpoints.save(name, capture(self))
        keep_good(self)
        if self.obeying is not None:
            self.obeying.settle()

    def check_restorable(self, snapshot: Snapshot) -> None:
        """Refuse a checkpoint whose version of the ensemble is damaged."""
        loop: Any = snapshot.documents["loop"]
        self.refreshing.versions.verify(int(loop["ensemble_version"]))

    def restore(self, loaded: Loaded, answers: bool = True) -> None:
        """Go on from a checkpoint; a run that had stopped to ask goes on where whoever resumes it answers so."""
        resume(self, loaded)
        if answers and self.guarding is not None and self.guarding.stopped:
            self.guarding.grant()


def sampling_of(config: Config) -> Sampling:
    return Sampling(**asdict(config.rollout))


def distinct_bigrams(responses: Sequence[Sequence[int]]) -> float:
    """Different pairs of neighbouring tokens over all such pairs in the batch; low when answers repeat."""
    pairs = [pair for r in responses for pair in pairwise(r)]
    return len(set(pairs)) / len(pairs) if pairs else 1.0
