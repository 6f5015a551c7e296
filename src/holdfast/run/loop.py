"""The online loop: policy and reward model both move.

    prompts -> policy -> comparisons -> labeller -> store                                (collect)
    store -> replay mix -> refresh -> ensemble version v+1                               (refresh_if_due)
    prompts -> policy -> responses -> ensemble - beta * KL -> credit -> update, n times  (step)
    policy, reference, last good policy -> fresh pairs -> people -> verdict -> actions   (review)
    position, weights, optimisers, controllers, ledger, RNGs -> checkpoint               (commit)

Everything that moves is a part of `RunState`; a resumed run goes on bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from holdfast.algorithms.finite import all_finite
from holdfast.checkpoint.store import CheckpointStore, Loaded
from holdfast.config import Config
from holdfast.control.kl import KLController
from holdfast.control.ledger import KLLedger
from holdfast.control.limit import KLLimit
from holdfast.control.plateau import Plateau
from holdfast.control.policy_mean import PolicyMean
from holdfast.control.schedule import Annealing, LearningRate
from holdfast.control.triggers import RefreshTriggers
from holdfast.errors import HoldfastError, Interrupted
from holdfast.guard.host import view_of
from holdfast.guard.review import Outcome
from holdfast.models.policy import Policy
from holdfast.models.prompt import Prompt
from holdfast.models.sharding import put_state, whole_state
from holdfast.preferences.collector import Collector
from holdfast.probes.prober import Prober
from holdfast.randomness import Cursor, Streams, generator
from holdfast.reward.refresher import Refresher
from holdfast.reward.source import RewardSource, Scored
from holdfast.run.answers import Answers
from holdfast.run.host import LoopHost, Orders
from holdfast.run.journal import Journal, Position
from holdfast.run.metrics import step_metrics
from holdfast.run.observer import Audience
from holdfast.run.owner import Owner
from holdfast.run.probes import own_answers, probe_step
from holdfast.run.rollback import RunState
from holdfast.run.showcase import Showcase
from holdfast.train.ppo import Experience, NonFiniteStep, PolicyOptimiser, response_values

# Steps in a row that are not numbers: one may be an odd batch, five are a policy that has come apart.
MOST_SKIPPED = 5


@dataclass
class OnlineLoop:
    """One noun per collaborator; `round` and `step` read like the algorithm. Without a guard there is no `host`."""

    config: Config
    prompts: Sequence[Prompt]
    prompt_ids: Sequence[list[int]]
    cursor: Cursor
    streams: Streams
    policy: Policy
    reference: Policy
    answers: Answers
    optimiser: PolicyOptimiser
    reward: RewardSource
    collector: Collector
    refresher: Refresher
    triggers: RefreshTriggers
    controller: KLController
    limit: KLLimit
    ledger: KLLedger
    learning_rate: LearningRate
    annealing: Annealing
    plateau: Plateau
    mean: PolicyMean
    orders: Orders
    host: LoopHost | None
    owner: Owner
    state: RunState
    checkpoints: CheckpointStore
    journal: Journal
    showcase: Showcase
    audience: Audience
    prober: Prober | None
    stop_requested: Callable[[], bool] = lambda: False

    @property
    def position(self) -> Position:
        return self.journal.position

    @property
    def stopped(self) -> bool:
        """Whether the guard has ended the run at its last good policy, and asks."""
        return self.host is not None and self.host.review.stopped

    def run(self) -> None:
        """All rounds from where the loop stands."""
        for _ in self.rounds():
            pass

    def rounds(self) -> Iterator[Outcome | None]:
        """The same, one at a time; what the guard's review of each came to."""
        rounds, steps, at = self.config.run.rounds, self.config.run.steps_per_round, self.position
        self.begin()
        self.journal.progress.begin("ppo", max(0, (rounds - at.round + 1) * steps - at.step_in_round))
        while at.round <= rounds and not self.stopped:
            yield self.round()
        if not self.stopped:
            self.journal.tracker.event(at.step, rounds, "run_finished")

    def begin(self) -> None:
        """What stands before the rounds: first samples and probes, the guard's baselines, what owners asked for."""
        fresh = self.checkpoints.is_empty()
        if fresh:
            self.position.tokens = 0  # what stands before the rounds may be shared, and is counted apart
            self.showcase.show()
            if self.prober is not None:
                answering = own_answers(self.config, self.answers.codec, self.answers.sampling, self.prober.stage)
                self.prober.begin(self.policy, answering)
            self.commit("round-0000")
        if self.host is not None:
            self.host.pin_good()
            self.host.review.begin(self.host)
        if not fresh and not self.position.audit_due and self.owner.carry_out():  # asked for while nobody was at work
            self.commit_now()
        self.wait_while_paused()

    def round(self) -> Outcome | None:
        """Collect, label, maybe refresh; n PPO steps; audit, verdict, actions; commit."""
        at = self.position
        self.reward.set_round(at.round)
        if not at.audit_due:
            if at.step_in_round == 0:
                self.collect()
                self.refresh_if_due()
            self.steps()
            if self.mean.ends_in_mean(at.round):
                self.take_mean()
            self.showcase.show()
            kl_round = self.ledger.round_total(at.round)
            self.journal.event("round_finished", kl=self.ledger.reference, kl_round=kl_round)
            self.commit_before_audit()
        name, outcome = f"round-{at.round:04d}", self.review()
        if self.mean.wants(at.round) and (outcome is None or outcome.stands):
            self.mean.add(whole_state(self.policy))
        at.next_round()
        self.commit(name)
        self.stop_if_asked()
        self.wait_while_paused()
        return outcome

    def steps(self) -> None:
        """The round's PPO steps, fewer where KL has gone too far or an owner has asked for an audit."""
        at = self.position
        while at.step_in_round < self.config.run.steps_per_round:
            if at.step_in_round and self.owner.ends_round():
                break
            self.step()
            if self.limit.exceeded(self.ledger.reference):
                self.journal.event("kl_limit", kl=self.ledger.reference, limit=self.config.kl.hard_limit)
                break
            if at.step_in_round < self.config.run.steps_per_round:
                self.commit_within_round()

    def step(self) -> None:
        """One PPO batch: sample, score, assign credit, update, account."""
        at, timed = self.position, self.journal.timed
        rows = [i for i in self.cursor.take(self.config.ppo.batch) for _ in range(self.config.ppo.samples_per_prompt)]
        with timed("sample"):
            rollout = self.answers.sample(self.policy, [self.prompt_ids[i] for i in rows], self.streams["rollout"])
        with timed("score"):
            batches = self.optimiser.batches(rollout)
            reference_BT = response_values(self.reference, rollout, batches, self.config.rollout.temperature)
            values_BT = self.optimiser.values(rollout, batches)
            scored = self.reward.reward(rollout, self.streams["shaping"])
        at.step, at.step_in_round = at.step + 1, at.step_in_round + 1
        beta, lr = self.controller.beta, self.learning_rate.rate * self.annealing.at(at.step - 1)
        try:
            if not all_finite([scored.members_KB]):
                raise NonFiniteStep("a reward member's scores are not all numbers")
            experience = self.optimiser.credit(rollout, reference_BT, values_BT, scored.rewards_B, beta)
            with timed("update"):
                learned, kl_step = self.optimiser.learn(experience, batches, beta, lr, self.streams["minibatches"])
        except NonFiniteStep as reason:
            self.skip_step(str(reason))
            return
        at.skipped_in_a_row = 0
        kl = float(experience.kl_B.mean())
        self.ledger.record(at.step, at.round, kl_step, kl)
        self.controller.update(kl, len(rows), self.reward.ensemble.labels)
        self.pace(float(scored.scores_B.mean()))
        with timed("guard"):
            readings = self.see(experience, scored, {**learned, "objective/kl_step": kl_step})
        held = {"objective/kl_step": kl_step, "control/beta": beta, "control/lr": lr}
        self.report_step(experience, scored, {**held, **learned, **readings})
        if self.prober is not None and self.prober.due(at.step):
            probe_step(self.prober, self.policy, experience, batches, self.config.rollout.temperature, at)
        self.audience.after_step(at.step, at.round, [self.prompts[i] for i in rows], self.answers.texts(rollout))

    def collect(self) -> None:
        """Have comparisons of the current policy's answers labelled and stored."""
        if self.position.step == 0:
            return  # The policy is still the reference, whose answers version 1 was trained on.
        more, self.orders.label_more = self.orders.label_more, 1.0
        round = self.position.round
        repeats = self.refresher.to_repeat(round, self.streams.seed) if self.config.preferences.per_round else []
        collected = self.collector.collect(round, self.policy, self.answers.sample, more, repeats)
        if collected:
            self.journal.event("labels_collected", comparisons=collected, labels=collected, repeats=len(repeats))

    def refresh_if_due(self) -> None:
        """Fine-tune the ensemble where a trigger says so and no freeze forbids it."""
        at, refresher = self.position, self.refresher
        kl_since = self.ledger.since(refresher.last_step)
        miscalibrated = self.host is not None and self.host.review.guard.miscalibrated
        reason = self.triggers.due(at.round, refresher.last_round, kl_since, refresher.settled, miscalibrated)
        if self.orders.refresh and not self.triggers.frozen(at.round):
            reason, self.orders.refresh = self.orders.refresh, ""
        if reason is None:
            return
        was_in_use = self.reward.ensemble.version
        outcome = refresher.refresh(at.round, at.step, self.streams)
        if outcome is None:
            self.journal.event("refresh_skipped", reason=f"{reason}, but there are no new labels")
            return
        if outcome.in_use != was_in_use:
            # Scores of two versions are not one curve, so the plateau test starts afresh.
            self.plateau.reset()
            if self.host is not None:
                self.host.learn_known()
        self.journal.event("refresh", reason=reason, **outcome.refresh_event())
        if self.config.gate.use:
            self.journal.event("gate", **outcome.gate_event())

    def review(self) -> Outcome | None:
        """The guard's part of the round; None without a guard."""
        if self.host is None:
            return None
        with self.journal.timed("audit"):
            return self.host.review.conduct(self.host)

    def see(self, experience: Experience, scored: Scored, learned: Mapping[str, float]) -> dict[str, float]:
        """Let the guard's signals read a step; what they read, by the names of metrics."""
        if self.host is None:
            return {}
        view = view_of(experience.rollout, scored, experience.reference_logprobs_BT, learned)
        return self.host.review.guard.see(view)

    def pace(self, score: float) -> None:
        """Advance the learning rate, and lower it when the policy has settled."""
        self.learning_rate.advance()
        self.plateau.add(score)
        if self.plateau.settled:
            self.learning_rate.settle()
            # Kept for the next round's refresh: the plateau test itself starts afresh below.
            self.refresher.settled = True
            self.journal.event("lr_decayed", lr=self.learning_rate.rate)
            self.plateau.reset()

    def skip_step(self, reason: str) -> None:
        """Count a step that met a value that is not a number; too many in a row take the run back, or end it."""
        at = self.position
        at.skipped, at.skipped_in_a_row = at.skipped + 1, at.skipped_in_a_row + 1
        self.journal.event("step_skipped", reason=reason)
        self.journal.metrics({"steps/skipped": at.skipped})
        self.journal.progress.advance()
        if at.skipped_in_a_row >= MOST_SKIPPED:
            reason = f"{at.skipped_in_a_row} steps in a row met values that are not numbers ({reason})"
            if self.host is None or not self.host.review.recover(self.host, reason):
                raise HoldfastError(f"{reason}; lower ppo.lr and resume from the last checkpoint.")
            at.skipped_in_a_row = 0

    def report_step(self, experience: Experience, scored: Scored, values: Mapping[str, float]) -> None:
        """One row of metrics, one of timings, one move of the progress bar."""
        at, ledger, target = self.position, self.ledger, self.controller.target
        row = {
            **step_metrics(experience, scored),
            "objective/kl_round": ledger.round_total(at.round),
            "objective/kl_cumulative": ledger.spent,
            **({} if target is None else {"control/kl_target": target}),
            **values,
            "steps/skipped": float(at.skipped),
        }
        self.journal.metrics(row)
        shown = {"score": "objective/scores", "kl": "objective/kl", "beta": "control/beta"}
        figures = {name: row[metric] for name, metric in shown.items()}
        self.journal.end_step(round=at.round, **figures, length=row["response/length_mean"])

    def take_mean(self) -> None:
        """End with the mean of the last rounds' policies: put it in the policy's place, and say what it is like."""
        policies = self.mean.policies + 1
        put_state(self.policy, self.mean.mean_with(whole_state(self.policy)))
        self.mean.restore({})  # it is in the policy now
        rng = generator(self.config.run.seed, "mean of policies")
        rows = torch.randint(len(self.prompt_ids), (self.config.ppo.batch,), generator=rng).tolist()
        rollout = self.answers.sample(self.policy, [self.prompt_ids[i] for i in rows], rng)
        batches, temperature = self.optimiser.batches(rollout), self.config.rollout.temperature
        reference_BT = response_values(self.reference, rollout, batches, temperature)
        kl_B = ((rollout.logprobs_BT - reference_BT) * rollout.mask_BT).sum(1)
        score, length = float(self.reward.reward(rollout, rng).scores_B.mean()), sum(rollout.lengths) / len(rows)
        self.journal.event("averaged", policies=policies, kl=float(kl_B.mean()), score=score, length=length)

    def commit_within_round(self) -> None:
        """Save every n steps where the config says so, and whenever somebody has asked for something."""
        at, every = self.position, self.config.checkpoint.every_steps
        obeyed, stopping = self.owner.carry_out(), self.stop_requested()
        if obeyed or stopping or (every and at.step_in_round % every == 0):
            self.commit_now()
        self.stop_if_asked()
        self.wait_while_paused()

    def commit_before_audit(self) -> None:
        """Save before people are asked where that may take long or owners have changed something.

        What people are asked about must not change while they answer: a run that is stopped meanwhile goes on with the
        same questions, whatever owners ask for in between.
        """
        obeyed = self.owner.carry_out()
        self.owner.ends_round()  # asked for in the last step: this is the audit
        if obeyed or self.collector.waits_for_people:
            self.position.audit_due = True
            self.commit_now()

    def commit_now(self) -> None:
        """Save where the loop stands within a round, or between two."""
        at = self.position
        within = f"round-{at.round:04d}-step-{at.step_in_round:04d}"
        self.commit(within if at.step_in_round else f"round-{at.round - 1:04d}")

    def commit(self, name: str) -> None:
        """Write a checkpoint that holds everything that moves."""
        self.checkpoints.save(name, self.state.capture())
        if self.host is not None:
            self.host.pin_good()
        self.owner.settle()

    def stop_if_asked(self) -> None:
        """Right after a commit: leave, if the user wants to."""
        if self.stop_requested() and self.position.round <= self.config.run.rounds:
            raise Interrupted

    def wait_while_paused(self) -> None:
        self.owner.wait_while_paused(self.commit_now, self.stop_requested)

    def resume(self, loaded: Loaded, answers: bool = True) -> None:
        """Go on from a checkpoint; a run that had stopped to ask goes on where whoever resumes it answers so."""
        self.state.resume(loaded.snapshot)
        self.audience.rewind(self.position.step)
        if self.prober is not None:
            self.prober.recall()
        if self.host is None:
            return
        if lost := self.host.find_anchor(loaded):
            self.journal.event("checkpoint_skipped", reason=lost)
            self.journal.progress.say(lost)
        if answers and self.host.review.stopped:
            self.host.review.grant()
