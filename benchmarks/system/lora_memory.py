"""What the ensemble and the guard cost in memory when all models share one base: the most memory of whole runs.

    full        Holdfast: LoRA, five reward members, budget, refresh, gate, guard
    bare        the policy's training alone: the same policy, adapters, steps and answers, one reward member that never
                changes, fixed KL, no guard
    copies      as full, but with weights of its own for every model (policy.lora_rank = 0); --copies

python -m benchmarks lora_memory                 a Llama of about 30 million weights with random values
python -m benchmarks lora_memory --policy DIR    a model of yours; `smollm2` for the one of `make real`

Each run is a process of its own, so that one's peak is not the other's. Runs are short: a second step needs no more
memory than the first, and there is a refresh, an audit and a commit in them. What the weights are does not matter to
memory, so the default model knows nothing. Writes benchmarks/results/lora_memory.json.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.record import keep, parser_of
from holdfast.config import load_config
from holdfast.models.load import load_causal_lm, write_model_directory
from holdfast.run.inputs import build_tiny
from holdfast.run.origin import load_policy
from holdfast.worlds.registry import load_task, load_world

LIMIT = 1.5
SAME = (
    "run.rounds=2", "run.steps_per_round=1", "world.options={prompts = 200, demonstrations = 200, heldout = 8}",
    "sft.epochs=0", "policy.lora_rank=16", "policy.micro_batch_tokens=2048", "ppo.batch=32", "ppo.lr=1e-4",
    "rollout.max_new_tokens=48", "reward.initial_comparisons=32", "reward.epochs=1", "reward.lr=1e-4",
    "reward.standardise_samples=16", "probes.every=0", "track.samples=2", "guard.baseline_batches=4",
)  # fmt: skip
FULL = (
    "reward.members=5", "preferences.per_round=16", "refresh.lr=1e-4", "gate.use=true", "audit.pairs=4",
    "audit.more_pairs=8",
)  # fmt: skip
BARE = (
    "reward.members=1", "preferences.per_round=0", "refresh.every_rounds=0", "refresh.on_miscalibration=false",
    "kl.controller=fixed", "kl.beta=0.05", "guard.mode=off",
)  # fmt: skip
COPIES = (*FULL, "policy.lora_rank=0", "policy.lora_targets=[]")


def main(words: Sequence[str]) -> int:
    parser = parser_of("lora_memory", __doc__)
    parser.add_argument("--policy", default="", help="a model directory, or smollm2")
    parser.add_argument("--copies", action="store_true", help="also with a copy of the weights for every model")
    parser.add_argument("--world", default="concierge", help="concierge, or everyday for a model that chats")
    args = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="holdfast-memory-") as scratch:
        directory = args.policy or str(make_model(Path(scratch) / "model"))
        weights = sum(p.numel() for p in load_policy(directory)[0].parameters())
        runs = {"bare": BARE, "full": FULL, **({"copies": COPIES} if args.copies else {})}
        found = {name: run(Path(scratch), directory, name, args.world, own) for name, own in runs.items()}
    ratio = found["full"]["peak_bytes"] / found["bare"]["peak_bytes"]
    print(f"{weights / 1e6:.0f} million weights, {4 * weights / 1e9:.2f} GB in float32\n")
    print(f"{'run':<8} {'members':>7} {'peak':>9} {'took':>9}")
    for name, row in found.items():
        print(f"{name:<8} {row['members']:>7.0f} {row['peak_bytes'] / 1e9:>6.2f} GB {row['seconds']:>7.0f} s")
    print(f"\nfull / bare {ratio:.2f} (at most {LIMIT})")
    keep("lora_memory", {"weights": weights, "world": args.world, "runs": found, "ratio": ratio, "limit": LIMIT})
    return 0 if ratio <= LIMIT else 1


def make_model(directory: Path) -> Path:
    """A Llama of random weights with the built-in world's words, large enough for weights to be most of the memory."""
    shape = [
        "policy.hidden=512",
        "policy.layers=10",
        "policy.heads=8",
        "policy.feed_forward=1408",
        "policy.context=256",
    ]
    config = load_config(None, shape)
    lm, codec = build_tiny(config, load_task(config, load_world(config)))

    def write(temporary: Path) -> None:
        lm.save_pretrained(temporary, safe_serialization=True)
        codec.tokenizer.save_pretrained(temporary)

    write_model_directory(directory, write)
    load_causal_lm(directory)
    return directory


def run(scratch: Path, policy: str, name: str, world: str, own: tuple[str, ...]) -> dict[str, float]:
    """One run in a process of its own; its peak is what the run's manifest says."""
    settings = [*SAME, *own, f"world.name={world}"]
    if world != "concierge":
        settings.append("world.options={heldout = 8}")
    words = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "holdfast.cli.main", "run", "--policy", policy]
    command += ["--runs", str(scratch), "--name", name, "--json", *words]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):  # 3: the guard has stopped it, as it may a model that knows nothing
        raise SystemExit(done.stderr)
    manifest = json.loads((scratch / name / "manifest.json").read_text(encoding="utf-8"))
    members = next(s for s in own if s.startswith("reward.members=")).partition("=")[2]
    return {
        "members": float(members), "peak_bytes": float(manifest["peak_memory"]), "seconds": float(manifest["seconds"])
    }  # fmt: skip
