"""`holdfast pipeline`: SFT, reward, PPO, DPO and distillation one after the other, with one ledger and one report."""

from __future__ import annotations

import argparse
import json
from typing import Any

from holdfast.cli.options import add_config_options, add_run_options, add_verb, config_of

DETAILS = """\
Stages may come in any order and number: sft, reward, ppo, dpo, distil. Each begins with the policy before it;
dpo@sft begins with an earlier stage's, dpo@ppo:round-0002 with one of its checkpoints, and dpo@DIR or
dpo@RUN@round-0003 with something else's. All share one label store and one set of probes. Ctrl-C stops at a point
from which `holdfast resume` goes on.

examples:
  holdfast pipeline                                             the built-in world
  holdfast pipeline --stages sft,reward,ppo,dpo@sft             DPO beside PPO instead of after it
  holdfast pipeline --policy ./my-sft --stages reward,distil,ppo --prompts p.jsonl --preferences labels.jsonl"""


def add(verbs: Any) -> None:
    parser = add_verb(verbs, "pipeline", "chain SFT, reward, PPO, DPO and distillation with one report", work, DETAILS)
    parser.add_argument("--stages", metavar="A,B,...", help="the stages in their order (sft,reward,ppo,dpo)")
    add_run_options(parser, "ledger")
    add_config_options(parser, "world", "seed", "rounds", "policy", "prompts", "demonstrations", "preferences")


def work(args: argparse.Namespace) -> int:
    from holdfast.cli.session import new_pipeline

    settings = [] if args.stages is None else [f"pipeline.stages={json.dumps(args.stages.split(','))}"]
    return new_pipeline(config_of(args, *settings), args.runs, args.name, as_json=args.json)
