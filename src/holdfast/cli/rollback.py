"""`holdfast rollback`: take a run back to one of its checkpoints, or its reward to an earlier version."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.options import add_verb

if TYPE_CHECKING:
    from holdfast.checkpoint.store import CheckpointStore
    from holdfast.people.requests import OwnerAction
    from holdfast.run.directory import RunDirectory

DETAILS = """\
Policy, critic, optimisers, schedules, KL control and ensemble go back together; no label is lost, and the KL ledger
keeps count of what is undone. The run goes on from there, and does as many rounds again as were undone;
`holdfast resume RUN --rounds N` sets another number. With --reward the ensemble goes back alone, and the policy stays.

examples:
  holdfast rollback runs/concierge-0                            the checkpoints and reward versions there are
  holdfast rollback runs/concierge-0 round-0003                 go back to the end of round 3
  holdfast rollback runs/concierge-0 round-0003 --reason "answers have become verbose"
  holdfast rollback runs/concierge-0 --reward 2                 score with version 2 of the ensemble again"""

ASKED_BY = "the command line"


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "rollback",
        "take a run back to one of its checkpoints, or its reward to an earlier version",
        work,
        DETAILS,
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a run directory, for example runs/concierge-0")
    parser.add_argument("checkpoint", metavar="CHECKPOINT", nargs="?", help="where to; left out, they are listed")
    parser.add_argument("--reward", type=int, metavar="N", help="only the reward ensemble, to version N of it")
    parser.add_argument("--reason", metavar="TEXT", default="", help="why, for the report")


def work(args: argparse.Namespace) -> int:
    from holdfast.checkpoint.store import CheckpointStore
    from holdfast.errors import HoldfastError
    from holdfast.reward.ensemble import VersionStore
    from holdfast.run.directory import RunDirectory

    run = RunDirectory.open(args.run)
    run.refuse_trainers()
    if stage := run.manifest().get("stage"):
        raise HoldfastError(f"{run.path} is a run of `holdfast {stage}`, which has no rollback; resume or export it.")
    checkpoints, versions = CheckpointStore(run.checkpoints), VersionStore(run.rewards)
    # Whole and undamaged, before anybody is asked.
    if args.checkpoint is not None:
        if args.reward is not None:
            raise HoldfastError("A CHECKPOINT brings its own version of the ensemble; leave --reward out.")
        checkpoints.load(args.checkpoint)
        ask(run, "rollback", {"checkpoint": args.checkpoint}, args.reason, args.checkpoint)
    elif args.reward is not None:
        versions.check_used(args.reward)
        versions.verify(args.reward)
        ask(run, "reward", {"version": args.reward}, args.reason, f"version {args.reward} of the ensemble")
    elif args.reason:
        raise HoldfastError("--reason says why a run goes back to a CHECKPOINT or a --reward; name that too.")
    else:
        show(checkpoints)
        if used := sorted(versions.accepted()):
            print(f"reward versions          {', '.join(map(str, used))}")
    return 0


def ask(run: RunDirectory, action: OwnerAction, arguments: dict[str, object], reason: str, to: str) -> None:
    """Write the request down, and say when it is carried out."""
    from uuid import uuid4

    from holdfast.checkpoint.lock import is_locked
    from holdfast.people.requests import RequestStore

    with run.open_store(run.config()) as store:
        RequestStore(store.database, run.key).ask(uuid4().hex, action, arguments, reason, ASKED_BY)
    if is_locked(run.path):
        print(f"asked for: the run goes back to {to} after the step that is under way")
    else:
        print(f"asked for: `holdfast resume {run.path}` goes back to {to} before it goes on")


def show(checkpoints: CheckpointStore) -> None:
    """The checkpoints that can be gone back to, oldest first."""
    from holdfast.checkpoint.transaction import state_of

    names = checkpoints.names()
    if not names:
        print("There is no checkpoint yet.")
    for name in names:
        snapshot = checkpoints.load(name)
        step, version = state_of(snapshot, "position")["step"], state_of(snapshot, "ensemble")["version"]
        good = "   the last good one" if name in checkpoints.pinned else ""
        print(f"{name:24} step {step:>5}   reward v{version:03d}{good}")
