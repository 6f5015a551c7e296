"""The online loop: policy and reward model both move.

    prompts -> policy -> comparisons -> labeller -> store                                (collect)
    store -> replay mix -> refresh -> ensemble version v+1                               (refresh_if_due)
    prompts -> policy -> responses -> ensemble - beta * KL -> credit -> update, n times  (steps)
    policy, reference, last good policy -> fresh pairs -> people -> verdict -> actions   (review)
    position, weights, optimisers, controllers, ledger, RNGs -> checkpoint               (commit)

Everything that moves is a part of `RunState`; a resumed run goes on bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from holdfast.checkpoint.pace import SavePace
from holdfast.checkpoint.store import CheckpointStore, Loaded
from holdfast.config import Config
from holdfast.control.ledger import KLLedger
from holdfast.control.triggers import RefreshTriggers
from holdfast.errors import HoldfastError, Interrupted
from holdfast.guard.review import Outcome
from holdfast.models.sharding import whole_state
from holdfast.preferences.collector import Collector
from holdfast.preferences.comparison import Comparison
from holdfast.reward.refresher import Refresher
from holdfast.run.host import LoopHost, Orders
from holdfast.run.journal import Journal, Position
from holdfast.run.learner import Learner
from holdfast.run.observer import Audience
from holdfast.run.owner import Owner
from holdfast.run.rollback import RunState
from holdfast.run.showcase import Showcase
from holdfast.text import counted

# Of the KL target, where kl.hard_limit does not say.
HARD_LIMIT = 2.0


@dataclass
class OnlineLoop:
    """One noun per collaborator; `round` reads like the algorithm.

    Without a guard there is no `host`, and without an ensemble there is no `refresher`.
    """

    config: Config
    learner: Learner
    collector: Collector
    refresher: Refresher | None
    triggers: RefreshTriggers
    ledger: KLLedger
    orders: Orders
    host: LoopHost | None
    owner: Owner
    state: RunState
    checkpoints: CheckpointStore
    journal: Journal
    showcase: Showcase
    audience: Audience
    stop_requested: Callable[[], bool] = lambda: False
    pace: SavePace = field(default_factory=SavePace)

    @property
    def position(self) -> Position:
        return self.journal.position

    @property
    def training(self) -> Refresher:
        """What trains the ensemble; refused where the reward is given."""
        if self.refresher is None:
            raise HoldfastError("The reward of this run is given (reward.source), so there is no ensemble to train.")
        return self.refresher

    @property
    def stopped(self) -> bool:
        """Whether the guard has ended the run at its last good policy, and asks."""
        return self.host is not None and self.host.review.stopped

    @property
    def spent(self) -> bool:
        """Whether the policy is as far from the reference as the run may go (run.stop_at_kl)."""
        limit = self.config.run.stop_at_kl
        return bool(limit) and self.ledger.reference >= limit

    @property
    def hard_limit(self) -> float:
        """The KL to the reference that ends a round early: as set, or twice what is aimed at; 0 for none."""
        limit = self.config.kl.hard_limit
        return limit if limit >= 0 else HARD_LIMIT * (self.learner.controller.target or 0.0)

    def run(self) -> None:
        """All rounds from where the loop stands."""
        for _ in self.rounds():
            pass

    def rounds(self) -> Iterator[Outcome | None]:
        """The same, one at a time; what the guard's review of each came to."""
        rounds, steps, at = self.config.run.rounds, self.config.run.steps_per_round, self.position
        self.begin()
        self.journal.progress.begin("ppo", max(0, (rounds - at.of_plan + 1) * steps - at.step_in_round))
        while at.of_plan <= rounds and not self.stopped and not self.spent:
            yield self.round()
        if at.step and at.skipped == at.step:
            raise HoldfastError(
                f"Every step of the run was dropped ({counted(at.step, 'step')}), so nothing was learned, and the "
                "policy is what it was before: mend what the events say (step_skipped), and start a run again."
            )
        if not self.stopped:
            self.journal.tracker.event(at.step, at.round - 1, "run_finished")

    def begin(self) -> None:
        """What stands before the rounds: first samples and probes, the guard's baselines, what owners asked for."""
        fresh = self.checkpoints.is_empty()
        if fresh:
            self.position.tokens = 0  # what stands before the rounds may be shared, and is counted apart
            self.showcase.show()
            self.learner.begin_probes()
            self.commit("round-0000")
        if self.host is not None:
            self.host.review.begin(self.host)
        if not fresh and not self.position.audit_due and self.owner.carry_out():  # asked for while nobody was at work
            self.commit_now()
        self.wait_while_paused()

    def round(self) -> Outcome | None:
        """Collect, label, maybe refresh; n PPO steps; audit, verdict, actions; commit."""
        at = self.position
        self.learner.reward.set_round(at.round)
        if not at.audit_due:
            if at.step_in_round == 0:
                self.collect()
                self.refresh_if_due()
            self.steps()
            if self.learner.mean.ends_in_mean(at.of_plan):
                self.learner.take_mean()
            self.showcase.show()
            kl_round = self.ledger.round_total(at.round)
            self.journal.event("round_finished", kl=self.ledger.reference, kl_round=kl_round)
            self.commit_before_audit()
        name, outcome = f"round-{at.round:04d}", self.review()
        if self.learner.mean.wants(at.of_plan) and (outcome is None or outcome.stands):
            self.learner.mean.add(whole_state(self.learner.policy))
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
            looked_at = self.read_by
            if trouble := self.learner.step():
                self.recover(trouble)
            if self.host is not None and self.read_by != looked_at:
                self.host.learn_known()  # another member's features from here on
            if self.spent:
                reached, stop = self.ledger.reference, self.config.run.stop_at_kl
                self.journal.event("kl_stop", kl=reached, limit=stop)
                break
            limit = self.hard_limit
            if limit and self.ledger.reference > limit:
                self.journal.event("kl_limit", kl=self.ledger.reference, limit=limit)
                break
            if at.step_in_round < self.config.run.steps_per_round:
                self.commit_within_round()

    @property
    def read_by(self) -> list[int]:
        """The member of the ensemble whose features the guard's signals read; none of a reward that is given."""
        return [] if self.refresher is None else self.refresher.ensemble.sound[:1]

    def recover(self, trouble: str) -> None:
        """The policy's steps have come apart: the guard takes it back, or the run ends."""
        if self.host is None or not self.host.review.recover(self.host, trouble):
            raise HoldfastError(f"{trouble}; start a run with a lower {self.learner.rate_setting}.")
        self.position.skipped_in_a_row = 0

    def collect(self) -> None:
        """Have comparisons of the current policy's answers labelled and stored."""
        if self.position.step == 0:
            return  # The policy is still the reference, whose answers version 1 was trained on.
        more, self.orders.label_more = self.orders.label_more, 1.0
        round = self.position.round
        repeats: list[Comparison] = []
        if self.refresher is not None and self.config.preferences.per_round:
            repeats = self.refresher.to_repeat(round, self.learner.streams.seed)
        collected = self.collector.collect(round, self.learner.policy, self.learner.answers.sample, more, repeats)
        if collected:
            again = len(self.collector.store.answered([comparison.id for comparison in repeats]))
            self.journal.event("labels_collected", comparisons=collected, labels=collected, repeats=again)

    def refresh_if_due(self) -> None:
        """Fine-tune the ensemble where a trigger says so and no freeze forbids it."""
        at, refresher = self.position, self.refresher
        if refresher is None:
            return
        kl_since = self.ledger.since(refresher.last_step)
        miscalibrated = self.host is not None and self.host.review.guard.miscalibrated
        reason = self.triggers.due(at.round, refresher.last_round, kl_since, refresher.settled, miscalibrated)
        if self.orders.refresh and not self.triggers.frozen(at.round):
            reason, self.orders.refresh = self.orders.refresh, ""
        if reason is None:
            return
        was_in_use = refresher.ensemble.version
        outcome = refresher.refresh(at.round, at.step, self.learner.streams)
        if outcome is None:
            self.journal.event("refresh_skipped", reason=f"{reason}, but there are no new labels")
            return
        if outcome.in_use != was_in_use:
            # Scores of two versions are not one curve, so the plateau test starts afresh.
            self.learner.plateau.reset()
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

    def commit_within_round(self) -> None:
        """Save where that costs little beside the steps that it keeps, and when somebody has asked for something."""
        obeyed, stopping = self.owner.carry_out(), self.stop_requested()
        if obeyed or stopping or self.pace.due:
            self.commit_now()
        self.stop_if_asked()
        self.wait_while_paused()

    def commit_before_audit(self) -> None:
        """Save before people are asked where that may take long, costs little, or owners have changed something.

        What people are asked about must not change while they answer: a run that is stopped meanwhile goes on with the
        same questions, whatever owners ask for in between.
        """
        returns = self.collector.returns
        obeyed = self.owner.carry_out()
        if self.collector.returns > returns:
            self.position.freed += 1  # all steps of this round are undone as well
        self.owner.ends_round()  # asked for in the last step: this is the audit
        if obeyed or self.collector.waits_for_people or self.pace.due:
            self.position.audit_due = True
            self.commit_now()

    def commit_now(self) -> None:
        """Save where the loop stands within a round, or between two."""
        self.commit(self.position.checkpoint_name)

    def commit(self, name: str) -> None:
        """Write a checkpoint that holds everything that moves."""
        with self.pace.saving():
            self.checkpoints.save(name, self.state.capture())
        if self.host is not None:
            self.host.pin_good()
        self.owner.settle()

    def stop_if_asked(self) -> None:
        """Right after a commit: leave, if the user wants to."""
        if self.stop_requested() and self.position.of_plan <= self.config.run.rounds:
            raise Interrupted

    def wait_while_paused(self) -> None:
        self.owner.wait_while_paused(self.commit_now, self.stop_requested)

    def replan(self) -> None:
        """The settings have changed: policies of an earlier plan are no neighbours of the last one; save at once."""
        self.learner.mean.restore({})
        self.commit_now()

    def resume(self, loaded: Loaded, answers: bool = True) -> None:
        """Go on from a checkpoint. A run that the guard had stopped goes on if `answers`: resuming it is the answer."""
        self.state.resume(loaded.snapshot)
        if self.learner.prober is not None:
            self.learner.prober.recall()
        if self.host is None:
            return
        if lost := self.host.find_anchor(loaded):
            self.journal.event("checkpoint_skipped", reason=lost)
            self.journal.progress.say(lost)
        self.host.pin_good()  # before anything is saved, which prunes: the file of pins may be lost
        if answers and self.host.review.stopped:
            self.host.review.grant()
