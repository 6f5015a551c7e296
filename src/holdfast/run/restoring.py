"""Everything that moves in a run, as one snapshot: to resume from, and to roll back to.

resume     all of it comes back, and the files are cut to match: the run goes on bit for bit
rollback   policy, critic, optimiser, learning rate, KL controller, mean of policies, random streams, cursor, ensemble
           version and replay watermark come back together; time goes on: counters, files, labels and the draws of what
           is labelled, the guard's memory, and the ledger, which marks the steps since as undone
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from holdfast.checkpoint.snapshot import Snapshot
from holdfast.checkpoint.store import Loaded
from holdfast.errors import HalfDone, HoldfastError
from holdfast.guard.review import Good
from holdfast.models.sharding import put_state, whole_state
from holdfast.parallel.processes import PROCESSES
from holdfast.preferences.collector import COLLECT
from holdfast.train.optimiser import optimiser_snapshot, restore_optimiser

if TYPE_CHECKING:
    from holdfast.run.loop import OnlineLoop


def capture(loop: OnlineLoop) -> Snapshot:
    """The state of a run at this moment."""
    with PROCESSES.joint("optimiser") if PROCESSES.sharded else nullcontext():
        optimiser_tensors, optimiser_document = optimiser_snapshot(loop.ppo.optimiser, whole=True)
    tensors: dict[str, Mapping[str, Tensor]] = {
        "policy": whole_state(loop.policy),
        "optimiser": optimiser_tensors,
        "streams": loop.streams.state(),
        "ledger": loop.ledger.state(),
    }
    if loop.ppo.critic is not None:
        tensors["critic"] = whole_state(loop.ppo.critic)
    if averaged := loop.averaging.state():
        tensors["average"] = averaged
    document: dict[str, Any] = {
        "position": asdict(loop.position),
        "cursor": loop.cursor.state(),
        "collecting": loop.collecting.cursor.state(),
        "controller": loop.controller.state(),
        "learning_rate": loop.learning_rate.state(),
        "plateau": loop.plateau.state(),
        "ensemble_version": loop.rewarding.ensemble.version,
        "refresh": {
            "last_round": loop.refreshing.last_round,
            "last_step": loop.refreshing.last_step,
            "settled": loop.refreshing.settled,
        },
        "guarding": None if loop.guarding is None else loop.guarding.state(),
        "obeying": None if loop.obeying is None else loop.obeying.state(),
        "watermark": loop.collecting.store.watermark(),
        "offsets": loop.tracker.offsets(),
    }
    return Snapshot(tensors, {"loop": document, "optimiser": optimiser_document})


def resume(loop: OnlineLoop, loaded: Loaded) -> None:
    """Put everything back to where a checkpoint left it, and cut the files to match."""
    snapshot = loaded.snapshot
    document: Any = snapshot.documents["loop"]
    _put_back(loop, snapshot)
    loop.position = type(loop.position)(**document["position"])
    loop.ledger.restore(snapshot.tensors["ledger"])
    if loop.collecting.store.watermark() < int(document["watermark"]):
        raise HoldfastError(
            "The label store holds fewer labels than the checkpoint was made with; "
            "bring back the database that belongs to this run."
        )
    lost = ""
    if loop.guarding is not None:
        state = document["guarding"]
        if state is None:
            raise HoldfastError(
                "The checkpoint was made without a guard; resume with the settings that the run began with."
            )
        good, lost = _last_good(loop, loaded, Good(**state["good"]))
        loop.guarding.restore({**state, "good": asdict(good.place)}, good.snapshot.tensors["policy"])
    if loop.obeying is not None:
        loop.obeying.restore(document.get("obeying"))
        loop.collecting.returns, loop.collecting.changes = loop.obeying.returns, loop.obeying.changes
    loop.tracker.rewind(document["offsets"])
    for observer in loop.observers:
        observer.rewind(loop.position.step)
    if lost:
        loop.event("checkpoint_skipped", reason=lost)
        loop.progress.say(lost)


@dataclass(frozen=True)
class _Found:
    place: Good
    snapshot: Snapshot


def _last_good(loop: OnlineLoop, loaded: Loaded, good: Good) -> tuple[_Found, str]:
    """The last good checkpoint, or the sound one nearest to it and a sentence that says so."""
    try:
        return _Found(good, loop.checkpoints.load(good.name)), ""
    except HoldfastError as error:
        fault = error.__cause__ or error
    found = [_Found(good_at(loaded.name, loaded.snapshot), loaded.snapshot)]
    for name in loop.checkpoints.names():
        with suppress(HoldfastError):
            snapshot = loop.checkpoints.load(name)
            loop.check_restorable(snapshot)
            found.append(_Found(good_at(name, snapshot), snapshot))
    nearest = min(found, key=lambda one: abs(one.place.step - good.step))
    return nearest, f"The last good checkpoint cannot be used, and {nearest.place.name} takes its place: {fault}"


def good_at(name: str, snapshot: Snapshot) -> Good:
    """A checkpoint as the last good one. Between two rounds it is of the earlier."""
    document: Any = snapshot.documents["loop"]
    at = document["position"]
    return Good(name, at["round"] if at["step_in_round"] else at["round"] - 1, at["step"])


def roll_back(loop: OnlineLoop, name: str) -> float:
    """Return to a checkpoint as one transaction; returns the KL that was undone.

    Nothing is on disk yet when this returns. The next commit makes it lasting in one piece, and a run that is killed
    before it does the round again, comes to the same verdict and rolls back again.
    """
    snapshot = loop.checkpoints.load(name)
    loop.check_restorable(snapshot)
    loop.ledger.check_returnable(snapshot.tensors["ledger"])
    drawn, stream = loop.collecting.cursor.state(), loop.streams[COLLECT].get_state()
    _put_back(loop, snapshot)
    # What is labelled next is drawn on from here. From the checkpoint on, the same policy would give the same answers
    # to the same prompts once more: labels spent twice, and comparisons that train beside copies that must not.
    loop.collecting.cursor.restore(drawn)
    loop.streams[COLLECT].set_state(stream)
    undone = loop.ledger.return_to(snapshot.tensors["ledger"])
    if different := differences(snapshot, capture(loop)):
        raise HalfDone(
            f"After the rollback to {name} the run's {different[0]} is not what the checkpoint holds; "
            "resume the run, which goes on from its newest checkpoint."
        )
    return undone


def _put_back(loop: OnlineLoop, snapshot: Snapshot) -> None:
    """What a rollback and a resume have in common."""
    document: Any = snapshot.documents["loop"]
    loop.refreshing.versions.load_into(loop.rewarding.ensemble, int(document["ensemble_version"]))
    put_state(loop.policy, snapshot.tensors["policy"])
    if loop.ppo.critic is not None:
        put_state(loop.ppo.critic, snapshot.tensors["critic"])
    optimiser_document: Any = snapshot.documents["optimiser"]
    with PROCESSES.joint("put optimiser", state={**optimiser_document, **snapshot.tensors["optimiser"]}):
        restore_optimiser(loop.ppo.optimiser, snapshot.tensors["optimiser"], optimiser_document)
    loop.streams.restore(snapshot.tensors["streams"])
    loop.cursor.restore(document["cursor"])
    loop.collecting.cursor.restore(document["collecting"])
    loop.controller.restore(document["controller"])
    loop.learning_rate.restore(document["learning_rate"])
    loop.plateau.restore(document["plateau"])
    loop.averaging.restore(snapshot.tensors.get("average", {}))
    loop.refreshing.last_round = int(document["refresh"]["last_round"])
    loop.refreshing.last_step = int(document["refresh"]["last_step"])
    loop.refreshing.settled = bool(document["refresh"]["settled"])


# What a rollback leaves alone: time, files, labels and what draws them, and the guard's own memory.
GOES_ON = ("position", "collecting", "guarding", "obeying", "watermark", "offsets", f"streams/{COLLECT}")


def differences(before: Snapshot, now: Snapshot) -> list[str]:
    """The parts of a run that are not bit for bit as a checkpoint has them, of those that a rollback brings back."""
    found = [f"{group}/" for group in now.tensors.keys() - before.tensors.keys()]
    found += [
        f"{group}/{name}"
        for group, tensors in before.tensors.items()
        if group != "ledger"
        for name, tensor in tensors.items()
        if f"{group}/{name}" not in GOES_ON
        if name not in now.tensors[group] or not torch.equal(tensor, now.tensors[group][name].cpu())
    ]
    then: Any = before.documents["loop"]
    here: Any = now.documents["loop"]
    found += [name for name in then if name not in GOES_ON and then[name] != here[name]]
    if before.documents["optimiser"] != now.documents["optimiser"]:
        found.append("optimiser")
    return found
