"""`holdfast bestofn`: the best of n answers by a reward, printed, written, or distilled into the policy."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.options import add_config_options, add_reward_option, add_verb, config_of, reward_of
from holdfast.text import counted

if TYPE_CHECKING:
    from holdfast.config import Config
    from holdfast.models.prompt import Prompt
    from holdfast.train.best_of_n import AnswerScores, Best, BestOfN

DETAILS = """\
Answers the prompts of --prompts, or the world's held-out ones. Of an ensemble `reward.aggregation` says how the
members' opinions become one score; worst and uncertainty resist being fooled when n is large. With --distil the
policy is fine-tuned on the best answers to the world's training prompts (or to --prompts) and written to a directory.

examples:
  holdfast bestofn --policy runs/concierge-0 --reward runs/concierge-0 --n 16
  holdfast bestofn --policy ./my-sft --reward my-rm --prompts p.jsonl --out answers.jsonl
  holdfast bestofn --policy ./my-sft --reward my_reward.py:score --prompts p.jsonl
  holdfast bestofn --policy ./my-sft --reward my-rm --distil my-better-sft --set bestofn.lr=1e-5"""


def add(verbs: Any) -> None:
    parser = add_verb(verbs, "bestofn", "sample n answers, score them, keep the best", work, DETAILS)
    add_reward_option(parser)
    parser.add_argument("--n", type=int, metavar="N", help="answers to each prompt (bestofn.n)")
    parser.add_argument("--aggregation", metavar="NAME", help="mean, median, worst, uncertainty or agreement")
    parser.add_argument("--limit", type=int, metavar="N", help="answer the first N prompts only")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the answers as .jsonl; must not exist")
    parser.add_argument("--distil", type=Path, metavar="DIR", help="fine-tune on the best answers and write the model")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_config_options(parser, "world", "seed", "policy", "prompts")


def work(args: argparse.Namespace) -> int:
    from holdfast.cli.terminal import watching
    from holdfast.errors import HoldfastError
    from holdfast.randomness import generator

    chooser, config, shown, trained, drawing = prepare(args)
    for path in (args.out, args.distil):
        if path is not None and path.exists():
            raise HoldfastError(f"{path} exists already; choose a name that does not.")
    with watching() as watch:
        if args.distil is not None:
            return distil_into(args, chooser, config, trained, watch)
        best = chooser.answers(shown, config.bestofn.n, generator(config.run.seed, "best of n"), watch)
    tell(best, args, drawing)
    return 0


def prepare(args: argparse.Namespace) -> tuple[BestOfN, Config, Sequence[Prompt], Sequence[Prompt], str]:
    """All loaded and checked: who chooses, settings, prompts to answer and to distil on, how answers are drawn."""
    from holdfast.data.formats import read_prompt_rows
    from holdfast.errors import HoldfastError
    from holdfast.models.lora import adapted, lora_of
    from holdfast.models.policy import Policy
    from holdfast.reward.ensemble import members_in
    from holdfast.reward.standalone import load_ensemble
    from holdfast.run.answers import sampling_of
    from holdfast.run.given import given_reward
    from holdfast.run.inputs import gather
    from holdfast.train.best_of_n import BestOfN
    from holdfast.worlds.registry import load_task, load_world

    named, source = reward_of(args)
    rewards = named / "rewards" if named is not None and (named / "rewards").is_dir() else named
    settings = ["sft.epochs=0", *(source if rewards is None else [f"reward.members={members_in(rewards)}"])]
    settings += [] if args.n is None else [f"bestofn.n={args.n}"]
    settings += [] if args.aggregation is None else [f"reward.aggregation={args.aggregation}"]
    config = config_of(args, *settings)
    if not config.policy.path:
        which = "to sample from" if rewards is None else "that the ensemble was trained for"
        raise HoldfastError(f"Give the policy {which} with --policy DIR.")
    if args.limit is not None and args.limit < 1:
        raise HoldfastError(f"--limit is {args.limit}; answer at least 1 prompt.")
    task, own = load_task(config, load_world(config)), None
    if args.prompts:
        rows = read_prompt_rows(args.prompts)
        own = [prompt for prompt, _ in rows]
        task = replace(task, heldout_prompts=own, columns={**dict(reversed(rows)), **task.columns})
    ingredients = gather(config, task, ensemble_given=True)
    config = ingredients.config
    scoring: AnswerScores
    if rewards is None:
        scoring = given_reward(ingredients, config.bestofn.n)
    else:
        scoring = load_ensemble(rewards, ingredients.lm, ingredients.codec, config)
    lora = lora_of(config.policy)
    # Adapters only for a policy that is going to learn.
    lm = adapted(ingredients.lm, lora, seed=config.run.seed) if args.distil and lora.rank else ingredients.lm
    policy = Policy(lm, fast=config.policy.fast, checkpointing=config.policy.gradient_checkpointing)
    chooser = BestOfN(
        policy, scoring, ingredients.codec, sampling_of(config),
        config.reward.aggregation, ingredients.grammars,
    )  # fmt: skip
    shown = list(own if own is not None else ingredients.task.heldout_prompts)[: args.limit]
    return chooser, config, shown, list(own if own is not None else ingredients.task.prompts), task.drawing


def distil_into(
    args: argparse.Namespace, chooser: BestOfN, config: Config, prompts: Sequence[Prompt], watch: Any
) -> int:
    from dataclasses import asdict

    from holdfast.models.load import save_model
    from holdfast.models.lora import merged
    from holdfast.stages.distillation import distil

    done = distil(chooser, prompts, config, watch)
    watch.finish()
    save_model(args.distil, merged(chooser.policy.lm), chooser.codec)
    if args.json:
        print(json.dumps({"model": str(args.distil), **asdict(done)}))
    else:
        print(
            f"{args.distil}   imitated {counted(done.answers, 'answer')} of score {done.score_imitated:+.2f}, where "
            f"one answer has {done.score_before:+.2f} on average; loss {done.loss:.3f} nats per token"
        )
    return 0


def tell(best: Sequence[Best], args: argparse.Namespace, drawing: str = "") -> None:
    from textwrap import indent

    from holdfast.checkpoint.files import write_atomic
    from holdfast.drawings.registry import terminal_of
    from holdfast.models.prompt import plain_text
    from holdfast.text import visible

    rows = [
        {
            "prompt": plain_text(b.prompt), "response": b.text, "finished": b.finished, "score": b.score,
            "members": list(b.members), "mean_score": b.mean_score, "n": b.n,
        }
        for b in best
    ]  # fmt: skip
    if args.out is not None:
        write_atomic(args.out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())
        print(f"{counted(len(rows), 'answer')} in {args.out}", file=sys.stderr)
    if args.json:
        print(json.dumps(rows))
    elif args.out is None:
        for b in best:
            print(visible(plain_text(b.prompt)))
            print(f"  {visible(b.text)}")
            if drawn := terminal_of(drawing, b.text, plain_text(b.prompt)):
                print(indent(drawn, "  "))
            print(f"  score {b.score:+.2f}, where one answer has {b.mean_score:+.2f} on average")
