"""Carrying out what the guard's ladder says: each rung changes something, reads it back, and writes an event."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError
from holdfast.guard.ladder import Action, Rung
from holdfast.guard.review import Orders
from holdfast.run.restoring import roll_back

if TYPE_CHECKING:
    from holdfast.run.loop import OnlineLoop


def act(loop: OnlineLoop, action: Action) -> None:
    """Do one thing about a verdict; the value that it changed is read back from the live object."""
    RUNGS[action.rung](loop, action)


def tighten(loop: OnlineLoop, action: Action) -> None:
    """Raise beta, and lower the KL that is aimed at."""
    guard, times = loop.config.guard, action.times
    before = {"beta": loop.controller.beta, "kl_target": loop.controller.target}
    loop.controller.tighten(guard.beta_factor**times, guard.budget_factor**times)
    after = {"beta": loop.controller.beta, "kl_target": loop.controller.target}
    _written(loop, action, "the policy is held closer to the reference", before, after)


def slow_down(loop: OnlineLoop, action: Action) -> None:
    """Lower the learning rate."""
    before = {"lr": loop.learning_rate.rate}
    loop.learning_rate.slow_down(action.times)
    _written(loop, action, "the learning rate is lowered", before, {"lr": loop.learning_rate.rate})


def label_more(loop: OnlineLoop, action: Action) -> None:
    """More comparisons in the next round, those on which members disagree where there are several."""
    orders = _orders(loop)
    before = {"label_more": orders.label_more}
    if loop.collecting.in_rounds:
        orders.label_more = max(orders.label_more, loop.config.guard.more_labels)
        several = len(loop.rewarding.ensemble.members) > 1
        words = "more labels in the next round" + (", where members disagree" if several else "")
    else:
        words = "more labels were wanted, and nobody labels in the rounds of this run"
    _written(loop, action, words, before, {"label_more": orders.label_more})


def refresh(loop: OnlineLoop, action: Action) -> None:
    """A refresh in the next round, whatever its triggers say."""
    orders = _orders(loop)
    before = {"refresh": orders.refresh}
    orders.refresh = f"the guard asked for it: {action.reason}"
    _written(loop, action, "the ensemble is refreshed in the next round", before, {"refresh": orders.refresh})


def adversarial(loop: OnlineLoop, action: Action) -> None:
    """Hacked answers beside good ones to the same prompts, labelled, for the refreshes to come."""
    guarding = loop.guarding
    assert guarding is not None
    store, count = loop.collecting.store, loop.config.audit.suspicious_pairs
    before = {"labels": store.watermark()}
    labelled = loop.collecting.collect_adversarial(
        loop.position.round, count, loop.policy, guarding.anchor, guarding.good.name, loop.sample, loop.config.run.seed
    )
    _written(
        loop, action, f"{labelled} hacked answers labelled beside good ones", before, {"labels": store.watermark()}
    )


def rollback(loop: OnlineLoop, action: Action) -> None:
    """Back to the last good checkpoint."""
    guarding = loop.guarding
    assert guarding is not None
    good = guarding.good
    undone = roll_back(loop, good.name)
    guarding.guard.after_rollback()
    loop.event(
        "rollback", to=good.name, step_from=loop.position.step, step_to=good.step, kl_undone=undone,
        undone=loop.ledger.undone_spans(), reason=action.reason, ensemble_version=loop.rewarding.ensemble.version,
    )  # fmt: skip


def stop(loop: OnlineLoop, action: Action) -> None:
    """End the run at its last good policy, and ask."""
    guarding = loop.guarding
    assert guarding is not None
    guarding.stopped = True
    loop.event("stopped", reason=action.reason)


def recover(loop: OnlineLoop, reason: str) -> None:
    """Back to the last good checkpoint with a lower learning rate, where the guard may; otherwise the run ends."""
    guarding = loop.guarding
    actions = guarding.ladder.broken(reason, guarding.good.name) if guarding is not None and guarding.acts else []
    if not actions:
        raise HoldfastError(f"{reason}; lower ppo.lr and resume from the last checkpoint.")
    for action in actions:
        act(loop, action)


RUNGS: dict[Rung, Callable[[OnlineLoop, Action], None]] = {
    "tighten": tighten,
    "slow_down": slow_down,
    "label_more": label_more,
    "refresh": refresh,
    "adversarial": adversarial,
    "rollback": rollback,
    "stop": stop,
}


def _orders(loop: OnlineLoop) -> Orders:
    assert loop.guarding is not None
    return loop.guarding.orders


def _written(loop: OnlineLoop, action: Action, words: str, before: object, after: object) -> None:
    """The event of an action, with the value before it and the one read back after it."""
    loop.event(
        "action", rung=action.rung, words=words, before=before, after=after, changed=before != after,
        reason=action.reason,
    )  # fmt: skip
