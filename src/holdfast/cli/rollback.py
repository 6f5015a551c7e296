"""`holdfast rollback`: take a run back to one of its checkpoints."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from holdfast.cli.options import add_verb

DETAILS = """\
Policy, critic, optimisers, schedules, KL control and ensemble go back together; no label is lost, and the KL ledger
keeps count of what is undone. The run goes on from there with the rounds that are left.

examples:
  holdfast rollback runs/concierge-0                            the checkpoints there are
  holdfast rollback runs/concierge-0 round-0003                 go back to the end of round 3
  holdfast rollback runs/concierge-0 round-0003 --reason "answers have become verbose\""""

ASKED_BY = "the command line"


def add(verbs: Any) -> None:
    parser = add_verb(verbs, "rollback", "take a run back to one of its checkpoints", DETAILS)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run directory, for example runs/concierge-0")
    parser.add_argument("checkpoint", metavar="CHECKPOINT", nargs="?", help="where to; left out, they are listed")
    parser.add_argument("--reason", metavar="TEXT", default="", help="why, for the report")
    parser.set_defaults(work=work)


def work(args: argparse.Namespace) -> int:
    from uuid import uuid4

    from holdfast.checkpoint.lock import is_locked
    from holdfast.checkpoint.store import CheckpointStore
    from holdfast.errors import HoldfastError
    from holdfast.preferences.requests import RequestStore
    from holdfast.preferences.store import PreferenceStore
    from holdfast.rundir import RunDirectory

    run = RunDirectory.open(args.run)
    if stage := run.manifest().get("stage"):
        raise HoldfastError(f"{run.path} is a run of `holdfast {stage}`, which has no rollback; resume or export it.")
    checkpoints = CheckpointStore(run.checkpoints)
    if args.checkpoint is None:
        if args.reason:
            raise HoldfastError("--reason says why a run goes back to a CHECKPOINT; name that too.")
        show(checkpoints)
        return 0
    checkpoints.load(args.checkpoint)  # whole and undamaged, before anybody is asked
    with PreferenceStore.open(run.database_url(run.config())) as store:
        requests = RequestStore(store.database, run.key)
        requests.ask(uuid4().hex, "rollback", {"checkpoint": args.checkpoint}, args.reason, ASKED_BY)
    if is_locked(run.path):
        print(f"asked for: the run goes back to {args.checkpoint} after the step that is under way")
    else:
        print(f"asked for: `holdfast resume {run.path}` goes back to {args.checkpoint} before it goes on")
    return 0


def show(checkpoints: Any) -> None:
    """The checkpoints that can be gone back to, oldest first."""
    names = checkpoints.names()
    if not names:
        print("There is no checkpoint yet.")
    for name in names:
        loop = checkpoints.load(name).documents["loop"]
        good = "   the last good one, by the audits" if name in checkpoints.pinned else ""
        print(f"{name:24} step {loop['position']['step']:>5}   reward v{loop['ensemble_version']:03d}{good}")
