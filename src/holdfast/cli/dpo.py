"""`holdfast dpo`: learn from labelled pairs directly, without a reward model."""

from __future__ import annotations

import argparse
from typing import Any

from holdfast.cli.options import add_config_options, add_run_options, add_verb, config_of

DETAILS = """\
Pairs come from --preferences; where there are none and the world has a labeller, the policy's own answers are
compared first. `dpo.loss` is sigmoid (DPO), ipo or simpo; `dpo.label_smoothing` makes it conservative and
`dpo.nll_weight` adds the chosen answer's cross-entropy. Probes show what it does to chosen and rejected answers,
and a warning is given when probability is squeezed into what the model says anyway.

For pairs that come fresh from the policy under the guard: `holdfast run --set run.optimiser=dpo
--set ppo.samples_per_prompt=2`.

examples:
  holdfast dpo --policy ./my-sft                                     the built-in world's labeller
  holdfast dpo --policy ./my-sft --prompts p.jsonl --preferences labels.jsonl --set dpo.lr=5e-7
  holdfast dpo --policy runs/concierge-0@round-0003                  from a run's checkpoint"""


def add(verbs: Any) -> None:
    parser = add_verb(verbs, "dpo", "learn from labelled pairs with DPO, IPO or SimPO", work, DETAILS)
    add_run_options(parser)
    add_config_options(parser, "world", "seed", "policy", "prompts", "preferences")


def work(args: argparse.Namespace) -> int:
    from holdfast.cli.session import new_run
    from holdfast.errors import HoldfastError
    from holdfast.stages.dpo_run import DPO

    config = config_of(args, "sft.epochs=0")
    if not config.policy.path:
        raise HoldfastError("DPO starts from a trained policy: give --policy DIR (`holdfast sft` makes one).")
    return new_run(config, args.runs, args.name, as_json=args.json, stage=DPO)
