"""`holdfast run`: the whole online loop in a new run directory."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from holdfast.cli.options import add_config_options, add_verb, config_of

DETAILS = """\
examples:
  holdfast run                                       the built-in world
  holdfast run --seed 7 --set run.rounds=12          the same, longer, another seed
  holdfast run --policy ./my-model                   your model on the built-in world
  holdfast run --policy ./my-model --prompts prompts.jsonl --preferences labels.jsonl
                                                     your model on your own data
Ctrl-C stops at a point from which `holdfast resume` goes on."""


def add(verbs: Any) -> None:
    parser = add_verb(verbs, "run", "run the online loop: SFT, reward ensemble, rounds of PPO and refresh", DETAILS)
    parser.add_argument("--name", help="name of the run directory below --runs; chosen for you if left out")
    parser.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="where runs are kept (runs)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_config_options(parser, "world", "seed", "rounds", "policy", "prompts", "demonstrations", "preferences")
    parser.set_defaults(work=work)


def work(args: argparse.Namespace) -> int:
    from holdfast.cli.session import new_run

    return new_run(config_of(args), args.runs, args.name, as_json=args.json)
