"""A run small enough to do many of: about a second from nothing to the report, every setting written down.

Nothing here leans on a default that somebody may change: what a test depends on is in `SETTINGS`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast.checkpoint.store import CheckpointStore
from holdfast.cli.main import main
from holdfast.config.rules import ENSEMBLE_ALONE
from holdfast.preferences.store import PreferenceStore
from holdfast.reward.ensemble import Ensemble

NAME = "small"
ROUNDS, STEPS = 3, 2
LAST = f"round-{ROUNDS:04d}"
# The parts of a run that a rollback takes back; a critic of its own is one too, where there is one.
TAKEN_BACK = {
    "ensemble", "policy", "optimiser", "streams", "cursor", "controller", "learning_rate", "plateau", "mean",
}  # fmt: skip

SETTINGS = {
    "run.seed": "3",
    "run.rounds": str(ROUNDS),
    "run.steps_per_round": str(STEPS),
    "run.stop_at_kl": "0.0",
    "run.device": "cpu",
    "run.threads": "1",
    "world.name": "concierge",
    "world.options": "{prompts = 64, demonstrations = 64, heldout = 8}",
    "world.label_noise": "0.1",
    "policy.hidden": "16",
    "policy.layers": "1",
    "policy.heads": "2",
    "policy.feed_forward": "32",
    "policy.context": "96",
    "policy.critic": "head",
    "policy.micro_batch_tokens": "512",
    "sft.epochs": "1",
    "sft.lr": "0.02",
    "sft.warmup_steps": "2",
    "sft.batch": "8",
    "rollout.max_new_tokens": "12",
    "rollout.temperature": "1.0",
    "rollout.top_p": "1.0",
    "rollout.top_k": "0",
    "rollout.max_batch": "256",
    "rollout.grammar": "",
    "rollout.renormalise": "true",
    "reward.members": "2",
    "reward.aggregation": "uncertainty",
    "reward.initial_comparisons": "24",
    "reward.holdout": "0.2",
    "reward.epochs": "1",
    "reward.lr": "0.002",
    "reward.warmup_steps": "1",
    "reward.batch": "8",
    "reward.pooling": "mean",
    "reward.label_smoothing": "0.0",
    "reward.standardise_samples": "16",
    "reward.shaping": "none",
    "refresh.every_rounds": "1",
    "refresh.kl_since": "0.0",
    "refresh.on_plateau": "false",
    "refresh.freeze": "[]",
    "refresh.lr": "0.001",
    "refresh.old_per_new": "2.0",
    "refresh.comparisons": "0",
    "refresh.weights": "equal",
    "gate.use": "true",
    "guard.mode": "act",
    "guard.baseline_batches": "4",
    "audit.pairs": "6",
    "audit.more_pairs": "12",
    "audit.budget": "1200",
    "preferences.per_round": "8",
    "preferences.selection": "random",
    "ppo.batch": "8",
    "ppo.samples_per_prompt": "1",
    "ppo.advantage": "gae",
    "ppo.loss": "token",
    "ppo.clip_high": "0.0",
    "ppo.epochs": "2",
    "ppo.minibatches": "2",
    "ppo.lr": "0.003",
    "ppo.critic_lr_factor": "1.0",
    "ppo.lr_final": "1.0",
    "ppo.lr_warmup_steps": "1",
    "ppo.epoch_kl_stop": "0.0",
    "ppo.gradient_penalty": "0.0",
    "ppo.advantage_offset": "0.0",
    "run.optimiser": "ppo",
    "dpo.loss": "sigmoid",
    "dpo.beta": "0.1",
    "dpo.epochs": "2",
    "dpo.batch": "8",
    "dpo.lr": "0.003",
    "dpo.sft_both": "0",
    "dpo.comparisons": "0",
    "bestofn.n": "4",
    "bestofn.prompts": "8",
    "bestofn.lr": "0.003",
    "pipeline.audit_pairs": "6",
    "probes.every": "0",
    "probes.prompts": "6",
    "kl.controller": "budget",
    "kl.beta": "0.05",
    "kl.budget_start": "2.0",
    "kl.budget_per_1000_labels": "1.0",
    "kl.budget_ceiling": "12.0",
    "kl.unit": "1.0",
    "kl.hard_limit": "0.0",
    "kl.placement": "reward",
    "kl.estimator": "k1",
    "checkpoint.keep": "2",
    "track.sinks": "[]",
    "track.samples": "4",
}


def settings(**changes: str) -> list[str]:
    """The settings as `--set` options; a change is written `ppo__lr="0.1"`.

    With a reward that is given those of the ensemble are left out.
    """
    changed = {name.replace("__", "."): value for name, value in changes.items()}
    usual = SETTINGS
    if {"reward.source", "reward.parts"} & changed.keys():
        usual = {name: value for name, value in SETTINGS.items() if not of_the_ensemble(name)}
    merged = usual | changed
    return [word for name, value in merged.items() for word in ("--set", f"{name}={value}")]


def of_the_ensemble(name: str) -> bool:
    """Whether a setting is about the ensemble alone."""
    section, _, key = name.partition(".")
    return section in ENSEMBLE_ALONE and (key in ENSEMBLE_ALONE[section] or not ENSEMBLE_ALONE[section])


def run_arguments(runs: Path, *more: str, **changes: str) -> list[str]:
    return ["run", "--runs", str(runs), "--name", NAME, *settings(**changes), *more]


def run(runs: Path, *more: str, **changes: str) -> Path:
    """A whole run in this process; returns its directory."""
    code = main(run_arguments(runs, *more, **changes))
    assert code == 0
    return runs / NAME


def claiming(patch: pytest.MonkeyPatch, claim: float) -> None:
    """Make the ensemble claim so often that the policy's answer is preferred, whichever pair it is."""
    patch.setattr(Ensemble, "claims", lambda ensemble, pairs: torch.full((len(pairs),), claim))


def result_of(run: Path, checkpoint: str = LAST) -> dict[str, object]:
    """Everything of a run that two equal runs share, by name, so that a difference says where it is."""
    result: dict[str, object] = {
        name: (run / name).read_bytes() for name in ("metrics.jsonl", "samples.jsonl", "gold.jsonl")
    }
    result |= checkpoint_of(run, checkpoint)
    result |= {f"rewards/{name}": digest for name, digest in versions_of(run).items()}
    with PreferenceStore.open(f"sqlite:///{run / 'run.db'}") as store:
        result["labels"] = store.labelled()
        result["label count"] = store.counts()
    return result


def checkpoint_of(run: Path, checkpoint: str = LAST) -> dict[str, object]:
    """A checkpoint's tensors as bytes, and its document without where the events, which have a clock, end."""
    snapshot = CheckpointStore(run / "checkpoints").load(checkpoint)
    document = json.loads(json.dumps(snapshot.documents["parts"]))
    del document["files"]["events.jsonl"]
    tensors = {
        f"{stem}/{name}": (str(tensor.dtype), tuple(tensor.shape), tensor.numpy().tobytes())
        for stem, group in snapshot.tensors.items()
        for name, tensor in group.items()
    }
    return {"parts": document, **tensors}


def versions_of(run: Path) -> dict[str, str]:
    """A digest of the weights of each version of the ensemble."""
    return {
        str(path.relative_to(run / "rewards")): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((run / "rewards").glob("v*/*.safetensors"))
    }


def differences(one: dict[str, object], other: dict[str, object]) -> list[str]:
    """Names of the parts in which two results differ."""
    return [name for name in sorted(one.keys() | other.keys()) if one.get(name) != other.get(name)]


def events_of(run: Path, kind: str | None = None) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [row for row in rows if kind in (None, row["event"])]


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def tree_of(directory: Path, but_not: Sequence[str] = ()) -> dict[str, str]:
    """Every file and directory below with a digest of what it holds."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in sorted(directory.rglob("*"))
        if path.name not in but_not
    }
