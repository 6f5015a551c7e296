"""Carrying out what owners ask for on the dashboard, between two steps, each with an event that says who asked.

    request in the database -> obey (between steps) -> commit -> settled in the database -> seen on the dashboard

The number of the newest request that was carried out is in the checkpoint. A run that is killed after it has committed
and before it has said so does not carry anything out twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from holdfast.errors import HalfDone, HoldfastError, Interrupted
from holdfast.people.requests import Action, OwnerRequest, RequestStore
from holdfast.run.overseeing import learn_known
from holdfast.run.restoring import good_at, roll_back

if TYPE_CHECKING:
    from holdfast.run.loop import OnlineLoop


@dataclass
class Obeying:
    """The requests to a run, and how far they have been carried out."""

    requests: RequestStore
    last: int = 0
    paused_by: str = ""
    audit_now: bool = False
    returns: int = 0  # rollbacks carried out
    changes: int = 0  # requests carried out after which steps come out differently
    unsettled: list[tuple[int, Literal["done", "refused"], str]] = field(default_factory=list)
    poll_seconds: float = 1.0

    def state(self) -> dict[str, Any]:
        known = ("last", "paused_by", "audit_now", "returns", "changes")
        return {name: getattr(self, name) for name in known}

    def restore(self, state: dict[str, Any] | None) -> None:
        """A checkpoint from before there were requests knows of none."""
        self.last = int(state["last"]) if state else 0
        self.paused_by = str(state["paused_by"]) if state else ""
        self.audit_now = bool(state.get("audit_now", False)) if state else False
        self.returns = int(state.get("returns", 0)) if state else 0
        self.changes = int(state.get("changes", 0)) if state else 0

    def ends_round(self) -> bool:
        """Whether an audit has been asked for, which ends the round; asked once."""
        asked, self.audit_now = self.audit_now, False
        return asked

    def settle(self) -> None:
        """Say what became of requests, now that it is saved."""
        for request_id, state, outcome in self.unsettled:
            self.requests.settle(request_id, state, outcome)
        self.unsettled.clear()


def obey(loop: OnlineLoop) -> bool:
    """Carry out what has been asked for since the last time; whether there was anything, which is then to be saved."""
    obeying = loop.obeying
    if obeying is None:
        return False
    asked = obeying.requests.pending()
    for request in asked:
        if request.id <= obeying.last:
            obeying.unsettled.append((request.id, "done", "carried out before the run was restarted"))
            continue
        try:
            outcome = _ACTIONS[request.action](loop, request)
        except HalfDone:
            raise
        except (HoldfastError, ValueError) as error:  # a number that makes no sense is the owner's to mend
            obeying.unsettled.append((request.id, "refused", str(error)))
            loop.event("owner", action=request.action, by=request.asked_by, words=f"refused: {error}", changed=False)
        else:
            obeying.unsettled.append((request.id, "done", outcome))
            if request.action in CHANGES_STEPS:
                obeying.changes += 1
                loop.collecting.changes = obeying.changes
        obeying.last = request.id
    return bool(asked)


def stay_paused(loop: OnlineLoop) -> None:
    """Wait while an owner has the run paused; everything is saved, so it may be stopped or killed meanwhile."""
    obeying = loop.obeying
    if obeying is None:
        return
    while obeying.paused_by:
        loop.progress.hold(f"paused by {obeying.paused_by} on the dashboard", 0, 1)
        if loop.stop_requested():
            raise Interrupted
        time.sleep(obeying.poll_seconds)
        if obey(loop):
            loop.commit_now()
    loop.progress.hold("", 1, 1)


def _pause(loop: OnlineLoop, request: OwnerRequest) -> str:
    assert loop.obeying is not None
    before, loop.obeying.paused_by = loop.obeying.paused_by, request.asked_by
    return _written(loop, request, "paused the run", {"paused": bool(before)}, {"paused": True})


def _resume(loop: OnlineLoop, request: OwnerRequest) -> str:
    assert loop.obeying is not None
    before, loop.obeying.paused_by = loop.obeying.paused_by, ""
    return _written(loop, request, "let the run go on", {"paused": bool(before)}, {"paused": False})


def _audit(loop: OnlineLoop, request: OwnerRequest) -> str:
    """The round ends here, and its audit asks about as many pairs as in a suspicious round."""
    assert loop.obeying is not None
    if loop.guarding is None:
        raise HoldfastError("the guard is off (guard.mode), so there are no audits.")
    if loop.guarding.auditing.left == 0:
        raise HoldfastError("no audit labels are left (audit.budget), or nobody answers them.")
    before = {"audit": loop.guarding.orders.audit}
    loop.guarding.orders.audit = f"{request.asked_by} asked for it"
    loop.obeying.audit_now = True
    return _written(
        loop, request, "asked for an audit, so the round ends here", before, {"audit": loop.guarding.orders.audit}
    )


def _rollback(loop: OnlineLoop, request: OwnerRequest) -> str:
    """To any checkpoint. One before the last good one takes its place: the guard returns to nothing that they left."""
    name = str(request.arguments["checkpoint"])
    then = good_at(name, loop.checkpoints.load(name))
    leaves_good = loop.guarding is not None and then.step < loop.guarding.good.step
    if leaves_good:
        loop.checkpoints.pin(name)  # the commit to come may be the one that would remove it
    undone = roll_back(loop, name)
    assert loop.obeying is not None
    loop.obeying.returns += 1
    loop.collecting.returns = loop.obeying.returns
    if loop.guarding is not None:
        loop.guarding.guard.after_rollback()
        learn_known(loop)
        if leaves_good:
            loop.guarding.advance(then.name, then.round, then.step, loop.policy)
    why = f"{request.asked_by} asked for it" + (f": {request.reason}" if request.reason else "")
    loop.event(
        "rollback", to=name, step_from=loop.position.step, step_to=then.step, kl_undone=undone,
        undone=loop.ledger.undone_spans(), reason=why, by=request.asked_by,
        ensemble_version=loop.rewarding.ensemble.version,
    )  # fmt: skip
    loop.let_observe()
    return f"rolled back to {name}"


def _reward(loop: OnlineLoop, request: OwnerRequest) -> str:
    """An earlier version of the ensemble scores from here on; policy and labels stay as they are."""
    version, ensemble = int(request.arguments["version"]), loop.rewarding.ensemble
    if version == ensemble.version:
        raise HoldfastError(f"version {version} of the ensemble is in use already.")
    before = {"version": ensemble.version}
    loop.refreshing.return_to(version, loop.ledger)
    # Scores of two versions are not one curve.
    loop.plateau.reset()
    learn_known(loop)
    words = f"went back to version {version} of the ensemble"
    return _written(loop, request, words, before, {"version": ensemble.version})


def _beta(loop: OnlineLoop, request: OwnerRequest) -> str:
    value, before = float(request.arguments["value"]), loop.controller.beta
    if before == 0.0:
        raise HoldfastError("beta is 0 and is kept there (kl.controller = fixed); start a run with another beta.")
    loop.controller.tighten(beta_factor=value / before)
    return _written(loop, request, "changed beta", {"beta": before}, {"beta": loop.controller.beta})


def _budget(loop: OnlineLoop, request: OwnerRequest) -> str:
    value, before = float(request.arguments["value"]), loop.controller.target
    if before is None:
        raise HoldfastError("kl.controller = fixed has no KL budget; change beta instead.")
    loop.controller.tighten(target_factor=value / before)
    return _written(
        loop, request, "changed the KL budget", {"kl_target": before}, {"kl_target": loop.controller.target}
    )


# After these a step comes out differently.
CHANGES_STEPS: tuple[Action, ...] = ("reward", "beta", "budget")

_ACTIONS: dict[Action, Callable[[OnlineLoop, OwnerRequest], str]] = {
    "pause": _pause,
    "resume": _resume,
    "audit": _audit,
    "rollback": _rollback,
    "reward": _reward,
    "beta": _beta,
    "budget": _budget,
}


def _written(loop: OnlineLoop, request: OwnerRequest, words: str, before: object, after: object) -> str:
    """The event of a request: who asked, why, the value before it and the one read back after it."""
    loop.event(
        "owner", action=request.action, by=request.asked_by, words=words, before=before, after=after,
        changed=before != after, reason=request.reason,
    )  # fmt: skip
    return words
