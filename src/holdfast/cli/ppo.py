"""`holdfast ppo`: optimise a policy against a given reward ensemble that stands still."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from holdfast.cli.options import add_config_options, add_run_options, add_verb, config_of

DETAILS = """\
The ensemble is not refreshed and nothing is labelled, so nothing corrects it where the policy goes beyond
what it was trained on: keep the KL budget small, or use `holdfast run`.

example:
  holdfast ppo --policy ./my-sft --reward my-rm"""

# No labels come in, so there is nothing to collect for or to refresh from.
STANDS_STILL = (
    "sft.epochs=0",
    "preferences.per_round=0",
    "refresh.every_rounds=0",
    "refresh.kl_since=0.0",
    "refresh.on_plateau=false",
)


def add(verbs: Any) -> None:
    parser = add_verb(verbs, "ppo", "optimise a policy against a reward ensemble that stands still", work, DETAILS)
    parser.add_argument("--reward", type=Path, required=True, metavar="DIR", help="a directory from `holdfast reward`")
    add_run_options(parser)
    add_config_options(parser, "world", "seed", "rounds", "policy", "prompts")


def work(args: argparse.Namespace) -> int:
    from holdfast.cli.session import new_run
    from holdfast.errors import HoldfastError
    from holdfast.reward.ensemble import members_in

    members = members_in(args.reward)
    config = config_of(args, *STANDS_STILL, f"reward.members={members}")
    if not config.policy.path:
        raise HoldfastError("Give the policy that the ensemble was trained for with --policy DIR.")
    return new_run(config, args.runs, args.name, as_json=args.json, ensemble_from=args.reward)
