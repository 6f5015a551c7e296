"""`holdfast sft`: supervised fine-tuning alone."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from holdfast.cli.options import add_config_options, add_verb, config_of

DETAILS = """\
examples:
  holdfast sft my-sft                                    the built-in world's demonstrations
  holdfast sft my-sft --policy ./base --prompts p.jsonl --demonstrations d.jsonl"""


def add(verbs: Any) -> None:
    parser = add_verb(verbs, "sft", "fine-tune a model on demonstrations and write it to a directory", work, DETAILS)
    parser.add_argument("out", type=Path, metavar="DIR", help="the model directory to write; must not exist")
    add_config_options(parser, "world", "seed", "policy", "prompts", "demonstrations")


def work(args: argparse.Namespace) -> int:
    from holdfast.cli.session import tell_notes
    from holdfast.cli.terminal import watching
    from holdfast.errors import HoldfastError
    from holdfast.models.load import save_model
    from holdfast.randomness import generator
    from holdfast.run.inputs import gather
    from holdfast.run.reference import imitator, take_in
    from holdfast.train.sft import fine_tune
    from holdfast.worlds.registry import load_task, load_world

    config = config_of(args)
    if args.out.exists():
        raise HoldfastError(f"{args.out} exists already; choose a directory that does not.")
    task = load_task(config, load_world(config))
    if not task.demonstrations or config.sft.epochs == 0:
        raise HoldfastError("There is nothing to imitate: give --demonstrations FILE and sft.epochs of at least 1.")
    ingredients = gather(config, task, ensemble_given=True)
    config = ingredients.config
    tell_notes(ingredients.task)
    with watching() as watch:
        policy = imitator(ingredients)
        loss = fine_tune(
            policy, ingredients.codec, ingredients.task.demonstrations, config.sft, config.policy.micro_batch_tokens,
            generator(config.run.seed, "sft"), watch,
        )  # fmt: skip
        take_in(ingredients, policy)
    save_model(args.out, ingredients.lm, ingredients.codec)
    print(f"{args.out}   loss {loss:.3f} nats per token over the last pass")
    return 0
