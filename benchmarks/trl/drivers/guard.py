# mypy: disable-error-code="import-not-found"
"""TRL's GRPO or RLOO on a reward with a flaw in it: JOB says on which, and with or without the guard.

    ensemble    a Holdfast ensemble whose members all pay for words from some step on
    flawed      two plain Python functions, of which one pays for words
    healthy     the other one alone

Runs in TRL's own environment, in as many processes as it is launched in. Gold is not looked at: the benchmark measures
the checkpoints afterwards.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoTokenizer, TrainerCallback

from benchmarks.trl.drivers.rewards import REWARDS, wanted
from benchmarks.trl.drivers.trainers import PLAIN, group_trainer, shard_on_processors
from holdfast.config.schema import AuditConfig, GuardConfig
from holdfast.interop.trl import EnsembleReward, HoldfastCallback, ensemble_reward
from holdfast.run.directory import RunDirectory
from holdfast.worlds.flaws import flaw_bonus
from holdfast.worlds.registry import load_flaw, load_task, load_world

CUT = 7  # exit code of a run that was cut on purpose


class Witness(TrainerCallback):  # type: ignore[misc]
    """Writes down, in each process, what its weights are before each step, to be compared afterwards."""

    def __init__(self, trainer: Any) -> None:
        self._trainer, self._rank = trainer, int(trainer.args.process_index)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model, digest = self._trainer.accelerator.unwrap_model(self._trainer.model), sha256()
        for parameter in model.parameters():
            held = parameter.detach().to_local() if hasattr(parameter, "to_local") else parameter.detach()
            digest.update(held.numpy().tobytes())
        with (Path(args.output_dir) / f"weights-{self._rank}.jsonl").open("a") as file:
            file.write(json.dumps({"step": state.global_step, "weights": digest.hexdigest()}) + "\n")


class Clock:
    """Seconds of training by what they were spent on: the guard at each step, its audits, and all the rest."""

    def __init__(self, callback: HoldfastCallback) -> None:
        self.seconds = {"guard": 0.0, "audits": 0.0}
        own: Any = callback
        accounts = {
            "_note": "guard", "on_step_end": "guard", "on_train_begin": "audits", "_review": "audits",
            "_measured": "audits",
        }  # fmt: skip
        for name, account in accounts.items():
            setattr(own, name, self._timed(getattr(own, name), account))

    def _timed(self, work: Callable[..., Any], account: str) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            began, audits = time.perf_counter(), self.seconds["audits"]
            result = work(*args, **kwargs)
            inside = self.seconds["audits"] - audits if account == "guard" else 0.0
            self.seconds[account] += time.perf_counter() - began - inside
            return result

        return timed


class Planted(TrainerCallback):  # type: ignore[misc]
    """The flaw counts from its onset on; where the job says so, the process dies in the middle of a step."""

    def __init__(self, reward: EnsembleReward | None, job: dict[str, Any]) -> None:
        self._reward, self._job = reward, job

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._reward is not None:
            self._reward.ensemble.bonus_scale = self._job["weight"] if state.global_step >= self._job["onset"] else 0.0
        if self._job["cut"] and state.global_step >= self._job["cut"]:
            sys.exit(CUT)


def drive(job: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    if job["sharded"]:
        shard_on_processors()
    run = RunDirectory.open(Path(job["run"]))
    config = run.config()
    task = load_task(config, load_world(config))
    ensemble = ensemble_reward(run.path) if job["reward"] == "ensemble" else None
    if ensemble is not None:
        ensemble.ensemble.bonus = flaw_bonus(load_flaw(job["flaw"], job["seed"], task.demonstrations), ensemble.codec)
    arguments, trainer_class = group_trainer(job["algorithm"])
    questions = [str(prompt) for prompt in task.prompts]
    rows = [{"prompt": [{"role": "user", "content": text}], "wanted": wanted(text)} for text in questions]
    trainer = trainer_class(
        model=str(run.reference),
        reward_funcs=[ensemble] if ensemble is not None else list(REWARDS[job["reward"]]),
        args=arguments(**settings(job)),
        processing_class=AutoTokenizer.from_pretrained(str(run.reference), padding_side="left"),
        train_dataset=Dataset.from_list(rows),
        callbacks=[Planted(ensemble, job)],
    )
    if ensemble is not None:
        ensemble.end_ids = frozenset(trainer.eos_token_ids)  # in both arms, so that both have the same reward
    assert task.labeller is not None, "the built-in world has one"
    trainer.add_callback(Witness(trainer))
    if job["guarded"]:
        callback = HoldfastCallback(
            task.labeller,
            every=job["every"],
            guard=GuardConfig(beta_factor=job["beta_factor"]),
            audit=AuditConfig(pairs=job["pairs"], more_pairs=job["more_pairs"]),
            seed=job["seed"],
        ).attach(trainer)
        clock = Clock(callback)
    metrics = trainer.train(resume_from_checkpoint=job["resume"] or None).metrics
    trainer.save_model(str(Path(job["output"]) / "final"))
    if job["guarded"] and trainer.args.process_index == 0:
        seconds = {**clock.seconds, "training": metrics["train_runtime"]}
        (Path(job["output"]) / "seconds.json").write_text(json.dumps(seconds))


def settings(job: dict[str, Any]) -> dict[str, Any]:
    return PLAIN | {
        "output_dir": job["output"],
        "model_init_kwargs": {"dtype": "float32"},
        "per_device_train_batch_size": job["answers"],
        "num_generations": job["group"],
        "max_steps": job["steps"],
        "max_completion_length": job["new_tokens"],
        "temperature": 1.0,
        **({} if job["beta"] is None else {"beta": job["beta"]}),
        **({} if job["loss"] is None else {"loss_type": job["loss"]}),
        "learning_rate": job["lr"],
        "lr_scheduler_type": "constant",
        "save_steps": job["every"],
        "logging_steps": job["every"],
        "eval_strategy": "no",
        "seed": job["seed"],
    }


if __name__ == "__main__":
    drive(json.loads(sys.argv[1]))
