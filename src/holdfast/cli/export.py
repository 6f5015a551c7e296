"""`holdfast export`: the trained policy as a Hugging Face directory, or the labels as a preference file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from holdfast.cli.options import add_verb
from holdfast.text import counted

DETAILS = """\
examples:
  holdfast export runs/concierge-0 my-model                    the newest policy, with a model card
  holdfast export runs/concierge-0 old --checkpoint round-0003  an earlier one
  holdfast export runs/smollm2-0 adapters --adapters           a LoRA run's adapters alone, as peft loads them
  holdfast export runs/concierge-0 my-model --hub me/my-model  the same, pushed to the hub as well
  holdfast export runs/concierge-0 --labels labels.jsonl       prompt / chosen / rejected rows (.parquet too)"""


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "export",
        "write the policy as a Hugging Face model directory, or the labels as a file",
        work,
        DETAILS,
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a run directory")
    parser.add_argument("out", type=Path, metavar="DIR", nargs="?", help="the model directory to write; must not exist")
    parser.add_argument("--checkpoint", metavar="NAME", help="which checkpoint (the newest)")
    parser.add_argument("--adapters", action="store_true", help="of a LoRA run: the adapters, not the merged weights")
    parser.add_argument("--hub", metavar="NAME", help="push it to this repository of the hub too; a new one is private")
    parser.add_argument("--labels", type=Path, metavar="FILE", help="write the labelled comparisons instead")
    parser.add_argument("--conversational", action="store_true", help="labels as lists of messages")


def work(args: argparse.Namespace) -> int:
    from holdfast.errors import HoldfastError
    from holdfast.run.directory import RunDirectory
    from holdfast.run.export import export_labels, export_policy

    run = RunDirectory.open(args.run)
    if (args.out is None) == (args.labels is None):
        raise HoldfastError("Say what to export: a DIR for the model, or --labels FILE for the labels.")
    if args.labels is not None and args.hub is not None:
        raise HoldfastError("--hub pushes a model; give a DIR for it and leave --labels out.")
    if args.labels is not None:
        written, skipped = export_labels(run, args.labels, args.conversational)
        ties = f", {counted(skipped, 'tie')} left out" if skipped else ""
        print(f"{args.labels}   {counted(written, 'row')}{ties}")
    else:
        done = export_policy(run, args.out, args.checkpoint, args.adapters, args.hub)
        for sentence in done.notes:
            print(f"note: {sentence}", file=sys.stderr)
        print(f"{args.out}   {done.policy} (checkpoint {done.checkpoint})")
        if done.pushed:
            print(f"{done.pushed}   pushed")
    return 0
