"""Looking at a guarded trainer: who answers, what it did, and the state it is in."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from group_trainer import GroupTrainer
from transformers import TrainerCallback

from holdfast.interop.trl import HoldfastCallback
from holdfast.preferences.comparison import Choice, Comparison, Label

EVERY = 2
# Ville's bar for a false alarm of 30% is reached by 12 losses in a row.
GUARD = {"false_alarm": 0.3, "baseline_batches": 4, "rollbacks": 2, "beta_factor": 2.0}


class Opinionated:
    """Knows whose answers they are, which people do not, so that a test decides what an audit finds."""

    name = "opinionated"

    def __init__(self, likes: Callable[[int], bool]) -> None:
        self._likes = likes
        self.policy_first: list[bool] = []

    def label(self, comparisons: Sequence[Comparison]) -> Sequence[Label]:
        return [Label(c.id, self.name, self._choose(c)) for c in comparisons]

    def _choose(self, c: Comparison) -> Choice:
        now = c.a.provenance.round
        first = c.a.provenance.policy_version == f"round-{now:04d}"
        self.policy_first.append(first)
        return Choice.A if first == self._likes(now) else Choice.B


def weights_of(trainer: GroupTrainer) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters()}


def moments_of(trainer: GroupTrainer) -> dict[str, torch.Tensor]:
    state = trainer.optimizer.state
    return {f"{n}/{key}": t.clone() for n, p in trainer.model.named_parameters() for key, t in state.get(p, {}).items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def events(callback: HoldfastCallback, kind: str) -> list[dict[str, Any]]:
    path = Path(callback.host.trainer.args.output_dir) / "holdfast" / "events.jsonl"
    return [row for row in map(json.loads, path.read_text().splitlines()) if row["event"] == kind]


def at_step(trainer: GroupTrainer, look: Callable[[int], None]) -> None:
    """Look after each step, before the guard does."""

    class Looking(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            look(state.global_step)

    trainer.callback_handler.callbacks.insert(0, Looking())
