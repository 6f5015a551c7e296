"""`holdfast reward`: a reward ensemble alone, from labels."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from holdfast.cli.options import add_config_options, add_verb, config_of
from holdfast.text import counted

DETAILS = """\
examples:
  holdfast reward my-rm --policy ./my-sft                              labels from the built-in world's labeller
  holdfast reward my-rm --policy ./my-sft --prompts p.jsonl --preferences labels.jsonl
`holdfast ppo --policy ./my-sft --reward my-rm` optimises against it."""


def add(verbs: Any) -> None:
    parser = add_verb(verbs, "reward", "train a reward ensemble on labelled comparisons", work, DETAILS)
    parser.add_argument("out", type=Path, metavar="DIR", help="the directory to write; must not exist")
    add_config_options(parser, "world", "seed", "policy", "prompts", "preferences")


def work(args: argparse.Namespace) -> int:
    from holdfast.cli.session import tell_notes
    from holdfast.cli.terminal import watching
    from holdfast.errors import HoldfastError
    from holdfast.reward.standalone import RewardEnsemble
    from holdfast.run.build import assemble
    from holdfast.run.directory import RunDirectory
    from holdfast.run.inputs import gather
    from holdfast.worlds.registry import load_task, load_world

    config = config_of(args, "sft.epochs=0")
    if config.reward.given:
        raise HoldfastError(
            "`holdfast reward` trains an ensemble, whose place reward.source and reward.parts take: leave them out."
        )
    if args.out.exists():
        raise HoldfastError(f"{args.out} exists already; choose a directory that does not.")
    if not config.policy.path:
        raise HoldfastError("Reward models start from a trained policy: give --policy DIR (`holdfast sft` makes one).")
    ingredients = gather(config, load_task(config, load_world(config)))
    tell_notes(ingredients.task)
    with tempfile.TemporaryDirectory(prefix="holdfast-reward-") as scratch, watching() as watch:
        run = RunDirectory.create(Path(scratch) / "reward", config, {})
        with assemble(ingredients, run, watch, (), watch.stop) as loop:
            ensemble, accuracy = loop.training.ensemble, loop.training.holdout_accuracy()
            RewardEnsemble(ensemble, ingredients.lm, ingredients.codec).save(args.out)
    right = "no held-out labels to measure on" if accuracy is None else f"right on {accuracy.of('held-out label')}"
    print(f"{args.out}   {counted(len(ensemble.members), 'member')}, {counted(ensemble.labels, 'label')}, {right}")
    return 0
