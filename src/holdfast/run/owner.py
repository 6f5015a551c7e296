"""Carrying out what owners ask for on the dashboard, between two steps, each with an event that says who asked.

    request in the database -> carry_out (between steps) -> commit -> settled in the database -> seen on the dashboard

The number of the newest request that was carried out is in the checkpoint. A run that is killed after it has committed
and before it has said so does not carry anything out twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from holdfast.checkpoint.transaction import state_of
from holdfast.errors import HalfDone, HoldfastError, Interrupted
from holdfast.people.requests import OwnerAction, OwnerRequest, RequestStore
from holdfast.preferences.collector import Collector
from holdfast.run.host import LoopHost
from holdfast.run.learner import Learner
from holdfast.run.rollback import RunState, good_at
from holdfast.run.showcase import Showcase

# After these a step comes out differently.
CHANGES_STEPS: tuple[OwnerAction, ...] = ("reward", "beta", "budget")


@dataclass
class Owner:
    """The requests to a run, and how far they have been carried out."""

    requests: RequestStore
    learner: Learner
    collector: Collector
    run_state: RunState
    showcase: Showcase
    host: LoopHost | None
    last: int = 0
    paused_by: str = ""
    audit_now: bool = False
    unsettled: list[tuple[int, Literal["done", "refused"], str]] = field(default_factory=list)
    poll_seconds: float = 1.0

    def state(self) -> dict[str, Any]:
        return {"last": self.last, "paused_by": self.paused_by, "audit_now": self.audit_now}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.last, self.paused_by = int(state["last"]), str(state["paused_by"])
        self.audit_now = bool(state["audit_now"])

    def ends_round(self) -> bool:
        """Whether an audit has been asked for, which ends the round; asked once."""
        asked, self.audit_now = self.audit_now, False
        return asked

    def settle(self) -> None:
        """Say what became of requests, now that it is saved."""
        for request_id, state, outcome in self.unsettled:
            self.requests.settle(request_id, state, outcome)
        self.unsettled.clear()

    def carry_out(self) -> bool:
        """Do what has been asked for since the last time; whether there was anything, which is then to be saved."""
        pending = self.requests.pending()
        for request in pending:
            if request.id <= self.last:
                self.unsettled.append((request.id, "done", "carried out before the run was restarted"))
                continue
            try:
                outcome = self._answer(request)
            except HalfDone:
                raise
            except (HoldfastError, ValueError) as error:  # a number that makes no sense is the owner's to mend
                self.unsettled.append((request.id, "refused", str(error)))
                words = f"refused: {error}"
                self.learner.journal.event(
                    "owner", action=request.action, by=request.asked_by, words=words, changed=False
                )  # fmt: skip
            else:
                self.unsettled.append((request.id, "done", outcome))
                if request.action in CHANGES_STEPS:
                    self.collector.changes += 1
            self.last = request.id
        return bool(pending)

    def wait_while_paused(self, commit: Callable[[], None], stop_requested: Callable[[], bool]) -> None:
        """Wait while an owner has the run paused; everything is saved, so it may be stopped or killed meanwhile."""
        while self.paused_by:
            self.learner.journal.progress.hold(f"paused by {self.paused_by} on the dashboard", 0, 1)
            if stop_requested():
                raise Interrupted
            time.sleep(self.poll_seconds)
            if self.carry_out():
                commit()
        self.learner.journal.progress.hold("", 1, 1)

    def _answer(self, request: OwnerRequest) -> str:
        answers: dict[OwnerAction, Callable[[OwnerRequest], str]] = {
            "pause": self._pause,
            "resume": self._resume,
            "audit": self._audit,
            "rollback": self._rollback,
            "reward": self._reward,
            "beta": self._beta,
            "budget": self._budget,
        }
        return answers[request.action](request)

    def _pause(self, request: OwnerRequest) -> str:
        before, self.paused_by = self.paused_by, request.asked_by
        return self._written(request, "paused the run", {"paused": bool(before)}, {"paused": True})

    def _resume(self, request: OwnerRequest) -> str:
        before, self.paused_by = self.paused_by, ""
        return self._written(request, "let the run go on", {"paused": bool(before)}, {"paused": False})

    def _audit(self, request: OwnerRequest) -> str:
        """The round ends here, and its audit asks about as many pairs as in a suspicious round."""
        if self.host is None:
            raise HoldfastError("the guard is off (guard.mode), so there are no audits.")
        review = self.host.review
        if not review.auditor.budget_left:
            raise HoldfastError("no labels are left for it (audit.budget, labels.budget), or nobody answers them.")
        before = {"audit": review.audit_asked}
        review.audit_asked = f"{request.asked_by} asked for it"
        self.audit_now = True
        words = "asked for an audit, so the round ends here"
        return self._written(request, words, before, {"audit": review.audit_asked})

    def _rollback(self, request: OwnerRequest) -> str:
        """To any checkpoint. One before the last good one takes its place: the guard goes back to nothing they left."""
        name, host, checkpoints = str(request.arguments["checkpoint"]), self.host, self.run_state.checkpoints
        snapshot = checkpoints.load(name)
        then, at = good_at(name, snapshot), self.learner.journal.position
        leaves_good = host is not None and then.step < host.review.good.step
        if leaves_good:
            checkpoints.pin(name)  # the commit to come may be the one that would remove it
        undone = self.run_state.roll_back(name)
        at.free(state_of(snapshot, "position"))
        self.collector.returns += 1
        if host is not None:
            host.review.guard.after_rollback()
            host.learn_known()
            if leaves_good:
                host.make_anchor()
                host.review.good = then
        refresher = self.learner.refresher
        why = f"{request.asked_by} asked for it" + (f": {request.reason}" if request.reason else "")
        self.learner.journal.event(
            "rollback", to=name, step_from=at.step, step_to=then.step, kl_undone=undone,
            undone=self.run_state.ledger.undone_spans(), reason=why, by=request.asked_by,
            **({} if refresher is None else {"ensemble_version": refresher.ensemble.version}),
        )  # fmt: skip
        self.showcase.observe()
        return f"rolled back to {name}"

    def _reward(self, request: OwnerRequest) -> str:
        """An earlier version of the ensemble scores from here on; policy and labels stay as they are."""
        version, refresher = int(request.arguments["version"]), self.learner.refresher
        if refresher is None:
            raise HoldfastError("the reward of this run is given (reward.source) and has no versions.")
        ensemble = refresher.ensemble
        if version == ensemble.version:
            raise HoldfastError(f"version {version} of the ensemble is in use already.")
        before = {"version": ensemble.version}
        refresher.return_to(version, self.run_state.ledger)
        # Scores of two versions are not one curve.
        self.learner.plateau.reset()
        if self.host is not None:
            self.host.learn_known()
        words = f"went back to version {version} of the ensemble"
        return self._written(request, words, before, {"version": ensemble.version})

    def _beta(self, request: OwnerRequest) -> str:
        value, before = float(request.arguments["value"]), self.learner.controller.beta
        if before == 0.0:
            raise HoldfastError("beta is 0 and is kept there (kl.controller = fixed); start a run with another beta.")
        self.learner.controller.tighten(beta_factor=value / before)
        return self._written(request, "changed beta", {"beta": before}, {"beta": self.learner.controller.beta})

    def _budget(self, request: OwnerRequest) -> str:
        value, before = float(request.arguments["value"]), self.learner.controller.target
        if before is None:
            raise HoldfastError("kl.controller = fixed has no KL budget; change beta instead.")
        self.learner.controller.tighten(target_factor=value / before)
        after = {"kl_target": self.learner.controller.target}
        return self._written(request, "changed the KL budget", {"kl_target": before}, after)

    def _written(self, request: OwnerRequest, words: str, before: object, after: object) -> str:
        """The event of a request: who asked, why, the value before it and the one read back after it."""
        self.learner.journal.event(
            "owner", action=request.action, by=request.asked_by, words=words, before=before, after=after,
            changed=before != after, reason=request.reason,
        )  # fmt: skip
        return words
