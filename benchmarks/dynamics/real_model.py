"""What a run on a real model has done: people's opinion of its policy against the base model, on held-out prompts.

    make real                                                  runs/everyday-1000
    holdfast run --config examples/smollm2-bare.toml           runs/everyday-1000-2
    python -m benchmarks real_model runs/everyday-1000 --bare runs/everyday-1000-2

The run's own audits have a few dozen pairs, which is enough to steer by and too few to say how much was gained. So the
base model and the policy that the run ends with answer every held-out prompt several times, and the run's labeller is
asked about the pairs, blind and with the sides shuffled. Intervals are over prompts. With `--bare` the same for the run
without a guard, and the difference between the two. Writes benchmarks/results/real_model.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from benchmarks.record import keep, parser_of
from holdfast.config import Config
from holdfast.lab.observer import gold_of
from holdfast.models.codec import Codec
from holdfast.models.load import load_causal_lm
from holdfast.models.policy import Policy
from holdfast.models.prompt import Prompt, plain_text
from holdfast.preferences.comparison import Choice, Comparison, Provenance, Response
from holdfast.preferences.labeller import Labeller
from holdfast.randomness import generator
from holdfast.rollout.sampler import Rollout, sample
from holdfast.run.answers import sampling_of
from holdfast.run.directory import RunDirectory
from holdfast.run.origin import checkpoint_policy
from holdfast.statistics import Estimate, bootstrap
from holdfast.worlds.registry import load_task, load_world

ANSWERS = 8
SHOWN = 3


def main(words: Sequence[str]) -> int:
    parser = parser_of("real_model", __doc__)
    parser.add_argument("run", type=Path, help="the guarded run")
    parser.add_argument("--bare", type=Path, help="the run without a guard")
    args = parser.parse_args(words)
    found = {name: measure(path) for name, path in (("guarded", args.run), ("bare", args.bare)) if path}
    print(f"{'run':<8} {'people prefer it to the base':>30} {'gold gained':>26} {'length':>13} {'unfinished':>14}"
          f" {'minutes':>8} {'memory':>8}")  # fmt: skip
    for name, row in found.items():
        print(
            f"{name:<8} {shown(row['preferred'], '.0%'):>30} {shown(row['gained'], '+.3f'):>26} "
            f"{row['base']['length']:>5.1f} to {row['policy']['length']:>4.1f} "
            f"{row['base']['unfinished']:>6.0%} to {row['policy']['unfinished']:>4.0%} "
            f"{row['seconds'] / 60:>8.1f} {row['peak_memory'] / 1e9:>5.2f} GB"
        )
    if args.bare:
        apart = [a - b for a, b in zip(found["guarded"]["golds"], found["bare"]["golds"], strict=True)]
        found["difference"] = {"gold": asdict(bootstrap(apart))}
        print(f"\ngold of the guarded run less that of the bare one: {shown(found['difference']['gold'], '+.3f')}")
    for example in found["guarded"]["answers"]:
        print(f"\n{example['prompt']}\n  before  {example['before']}\n  after   {example['after']}")
    keep("real_model", {"answers_per_prompt": ANSWERS, "runs": found})
    return 0 if found["guarded"]["preferred"]["low"] > 0.5 else 1


def measure(path: Path) -> dict[str, Any]:
    """A run's last policy beside its base, on the prompts that it was not trained on."""
    run = RunDirectory.open(path)
    config = run.config()
    world = load_world(config)
    task, gold = load_task(config, world), gold_of(world)
    if task.labeller is None or gold is None:
        raise SystemExit(f"{path}: nobody answers there, or its gold is not known.")
    prompts = list(task.heldout_prompts)
    base, codec = load_causal_lm(run.reference, config.policy.dtype)
    theirs = answers(base, codec, config, prompts)
    ours = answers(checkpoint_policy(run, None, config.policy.dtype)[0], codec, config, prompts)
    golds = [
        [gold(p, r.text, r.finished) for p, r in zip(repeated(prompts), side, strict=True)] for side in (ours, theirs)
    ]
    preferred = wins(task.labeller, prompts, ours, theirs)
    manifest = run.manifest()
    return {
        "preferred": asdict(by_prompt(preferred)),
        "gained": asdict(by_prompt([a - b for a, b in zip(*golds, strict=True)])),
        "golds": means(golds[0]),
        "base": looks(theirs, golds[1]),
        "policy": looks(ours, golds[0]),
        "answers": [
            {
                "prompt": plain_text(prompts[i]),
                "before": theirs[i * ANSWERS].text,
                "after": ours[i * ANSWERS].text,
            }
            for i in range(SHOWN)
        ],
        "seconds": float(manifest["seconds"]),
        "peak_memory": int(manifest["peak_memory"]),
    }


def repeated(prompts: list[Prompt]) -> list[Prompt]:
    return [prompt for prompt in prompts for _ in range(ANSWERS)]


def answers(lm: Any, codec: Codec, config: Config, prompts: list[Prompt]) -> list[Response]:
    """Several answers to each prompt, one prompt after the other."""
    policy = Policy(lm, fast=config.policy.fast)
    ids = [codec.encode_prompt(prompt) for prompt in repeated(prompts)]
    rng = generator(config.run.seed, "real model")
    rollout: Rollout = sample(policy, ids, sampling_of(config), codec.eos_id, codec.pad_id, rng)
    origin = Provenance("benchmark", 0, 0)
    return [
        Response(codec.decode(r), origin, tuple(r), done)
        for r, done in zip(rollout.responses, rollout.finished, strict=True)
    ]


def wins(labeller: Labeller, prompts: list[Prompt], ours: list[Response], theirs: list[Response]) -> list[float]:
    """1 where people prefer the policy's answer, pair by pair; asked with the sides shuffled."""
    swapped = torch.randint(2, (len(ours),), generator=generator(0, "real model sides")).tolist()
    asked = []
    for n, (prompt, a, b) in enumerate(zip(repeated(prompts), ours, theirs, strict=True)):
        comparison = Comparison(f"real-model-{n:05d}", prompt, a, b, 0)
        asked.append(comparison.swap() if swapped[n] else comparison)
    won = {Choice.A: 1.0, Choice.TIE: 0.5, Choice.B: 0.0}
    told = [won[label.choice] for label in labeller.label(asked)]
    return [1.0 - share if swap else share for share, swap in zip(told, swapped, strict=True)]


def means(values: list[float]) -> list[float]:
    """The mean over each prompt's answers."""
    return [fmean(values[i : i + ANSWERS]) for i in range(0, len(values), ANSWERS)]


def by_prompt(values: list[float]) -> Estimate:
    return bootstrap(means(values))


def looks(responses: list[Response], golds: list[float]) -> dict[str, float]:
    return {
        "gold": fmean(golds),
        "length": fmean(len(r.token_ids or ()) for r in responses),
        "unfinished": fmean(not r.finished for r in responses),
    }


def shown(estimate: dict[str, float], form: str) -> str:
    mean, low, high = (format(estimate[name], form) for name in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"
