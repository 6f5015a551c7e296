"""`holdfast run`: the whole online loop in a new run directory."""

from __future__ import annotations

import argparse
from typing import Any

from holdfast.cli.options import add_config_options, add_run_options, add_verb, config_of

DETAILS = """\
examples:
  holdfast run                                       the built-in world
  holdfast run --seed 7 --set run.rounds=12          the same, longer, another seed
  holdfast run --policy ./my-model                   your model on the built-in world
  holdfast run --policy ./my-model --prompts prompts.jsonl --preferences labels.jsonl
                                                     your model on your own data
Ctrl-C stops at a point from which `holdfast resume` goes on."""


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs, "run", "run the online loop: SFT, reward ensemble, rounds of PPO and refresh", work, DETAILS
    )
    add_run_options(parser)
    add_config_options(parser, "world", "seed", "rounds", "policy", "prompts", "demonstrations", "preferences")


def work(args: argparse.Namespace) -> int:
    from holdfast.cli.session import new_run

    return new_run(config_of(args), args.runs, args.name, as_json=args.json)
