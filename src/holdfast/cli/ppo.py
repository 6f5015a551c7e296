"""`holdfast ppo`: optimise a policy against a reward that stands still: an ensemble, or one of yours."""

from __future__ import annotations

import argparse
from typing import Any

from holdfast.cli.options import add_config_options, add_reward_option, add_run_options, add_verb, config_of, reward_of

DETAILS = """\
An ensemble is not refreshed and nothing is labelled, so nothing corrects it where the policy goes beyond
what it was trained on: keep the KL budget small, or use `holdfast run`. A reward of yours is guarded as in
`holdfast run`: people compare answers in audits.

examples:
  holdfast ppo --policy ./my-sft --reward my-rm
  holdfast ppo --policy ./my-sft --reward my_reward.py:score --prompts p.jsonl"""

# No labels come in, so there is nothing to collect for or to refresh from.
STANDS_STILL = (
    "sft.epochs=0",
    "preferences.per_round=0",
    "refresh.every_rounds=0",
    "refresh.kl_since=0.0",
    "refresh.on_plateau=false",
)


def add(verbs: Any) -> None:
    parser = add_verb(verbs, "ppo", "optimise a policy against a reward that stands still", work, DETAILS)
    add_reward_option(parser)
    add_run_options(parser)
    add_config_options(parser, "world", "seed", "rounds", "policy", "prompts")


def work(args: argparse.Namespace) -> int:
    from holdfast.cli.session import new_run
    from holdfast.errors import HoldfastError
    from holdfast.reward.ensemble import members_in

    ensemble, source = reward_of(args)
    if ensemble is None:
        config = config_of(args, "sft.epochs=0", *source)
        if not config.policy.path:
            raise HoldfastError("Give the policy to start from with --policy DIR (`holdfast sft` makes one).")
    else:
        config = config_of(args, *STANDS_STILL, f"reward.members={members_in(ensemble)}")
        if not config.policy.path:
            raise HoldfastError("Give the policy that the ensemble was trained for with --policy DIR.")
    return new_run(config, args.runs, args.name, as_json=args.json, ensemble_from=ensemble)
