# mypy: disable-error-code="import-not-found"
"""TRL's GRPO or RLOO on a Holdfast ensemble with a flaw in it: JOB says with or without the guard.

Runs in TRL's own environment. Gold is not looked at: the benchmark measures the checkpoints afterwards.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoTokenizer, TrainerCallback

from benchmarks.trl.drivers.trainers import PLAIN, group_trainer
from holdfast.config.schema import AuditConfig, GuardConfig
from holdfast.interop.trl import EnsembleReward, HoldfastCallback, ensemble_reward
from holdfast.preferences.comparison import Comparison, Label
from holdfast.preferences.labeller import Labeller
from holdfast.run.directory import RunDirectory
from holdfast.worlds.flaws import flaw_bonus
from holdfast.worlds.registry import load_flaw, load_task, load_world

CUT = 7  # exit code of a run that was cut on purpose


class ByContent:
    """A labeller whose slips follow from what it reads: a resumed run asks the same under other names."""

    def __init__(self, labeller: Labeller) -> None:
        self.name, self._labeller = labeller.name, labeller

    def label(self, comparisons: Sequence[Comparison]) -> list[Label]:
        texts = [repr((c.prompt, c.a.text, c.b.text)) for c in comparisons]
        renamed = [replace(c, id=sha256(text.encode()).hexdigest()) for c, text in zip(comparisons, texts, strict=True)]
        said = self._labeller.label(renamed)
        return [replace(label, comparison_id=c.id) for label, c in zip(said, comparisons, strict=True)]


class Planted(TrainerCallback):  # type: ignore[misc]
    """The flaw counts from its onset on; where the job says so, the process dies in the middle of a step."""

    def __init__(self, reward: EnsembleReward, job: dict[str, Any]) -> None:
        self._reward, self._job = reward, job

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        begun = state.global_step >= self._job["onset"]
        self._reward.ensemble.bonus_scale = self._job["weight"] if begun else 0.0
        if self._job["cut"] and state.global_step >= self._job["cut"]:
            sys.exit(CUT)


def drive(job: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    run = RunDirectory.open(Path(job["run"]))
    config = run.config()
    task = load_task(config, load_world(config))
    reward = ensemble_reward(run.path)
    reward.ensemble.bonus = flaw_bonus(load_flaw(job["flaw"], job["seed"], task.demonstrations), reward.codec)
    arguments, trainer_class = group_trainer(job["algorithm"])
    trainer = trainer_class(
        model=str(run.reference),
        reward_funcs=[reward],
        args=arguments(**settings(job)),
        processing_class=AutoTokenizer.from_pretrained(str(run.reference), padding_side="left"),
        train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": str(p)}]} for p in task.prompts]),
        callbacks=[Planted(reward, job)],
    )
    reward.end_ids = frozenset(trainer.eos_token_ids)  # in both arms, so that both have the same reward
    assert task.labeller is not None, "the built-in world has one"
    if job["guarded"]:
        HoldfastCallback(
            reward,
            ByContent(task.labeller),
            every=job["every"],
            guard=GuardConfig(beta_factor=job["beta_factor"]),
            audit=AuditConfig(pairs=job["pairs"], more_pairs=job["more_pairs"]),
            seed=job["seed"],
        ).attach(trainer)
    trainer.train(resume_from_checkpoint=job["resume"] or None)
    trainer.save_model(str(Path(job["output"]) / "final"))


def settings(job: dict[str, Any]) -> dict[str, Any]:
    return PLAIN | {
        "output_dir": job["output"],
        "model_init_kwargs": {"dtype": "float32"},
        "per_device_train_batch_size": job["answers"],
        "num_generations": job["group"],
        "max_steps": job["steps"],
        "max_completion_length": job["new_tokens"],
        "temperature": 1.0,
        "beta": job["beta"],
        "learning_rate": job["lr"],
        "lr_scheduler_type": "constant",
        "save_steps": job["every"],
        "logging_steps": job["every"],
        "eval_strategy": "no",
        "seed": job["seed"],
    }


if __name__ == "__main__":
    drive(json.loads(sys.argv[1]))
