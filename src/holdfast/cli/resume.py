"""`holdfast resume`: go on with a run that was stopped, killed or cut off."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from holdfast.cli.options import add_verb

DETAILS = """\
The run goes on from its newest complete checkpoint and, on a CPU, ends with the same weights and metrics,
bit for bit, as if it had never stopped. A damaged checkpoint is passed over, and the report says so.
Settings in config.toml that are not those the run was saved with are refused, unless you say --changed.

examples:
  holdfast resume runs/concierge-0                   after Ctrl-C, a crash or a power cut
  holdfast resume runs/concierge-0 --rounds 12       to 12 rounds in all, also of a run that has finished
  holdfast resume runs/concierge-0 --changed         with what you have changed in its config.toml"""


def add(verbs: Any) -> None:
    parser = add_verb(verbs, "resume", "go on with a run from its newest complete checkpoint", work, DETAILS)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run directory, for example runs/concierge-0")
    parser.add_argument("--rounds", type=int, metavar="N", help="how many rounds the run is to have in all")
    parser.add_argument("--changed", action="store_true", help="go on with settings changed in the run's config.toml")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def work(args: argparse.Namespace) -> int:
    from holdfast.cli.session import resume_pipeline, resume_run
    from holdfast.run.directory import RunDirectory

    run = RunDirectory.open(args.run)
    run.refuse_trainers()
    again = resume_pipeline if run.manifest().get("stage") == "pipeline" else resume_run
    return again(run, args.changed, args.rounds, as_json=args.json)
