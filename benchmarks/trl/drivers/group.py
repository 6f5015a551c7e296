# mypy: disable-error-code="import-not-found"
"""TRL's GRPO or RLOO, one iteration at a time: JOB is the JSON of a `Job`.

An iteration is what the trainer does from one generation to the next: generation, scoring (the policy's and the
reference's log-probs, the reward model), and as many optimiser steps over those answers as there are epochs. Settings
are the trainer's defaults but for what both sides have to share, and for what would only cost it time here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.speed.wire import Moment, Wire, now, report, serve
from benchmarks.trl.drivers.trainers import PLAIN, group_trainer
from holdfast.track.memory import memory

# More than anybody waits for; the learning rate is spread over them.
ITERATIONS = 1_000


class Gate:
    """Stands before the trainer's generation: holds it back until the benchmark asks for an iteration."""

    def __init__(self, wire: Wire, trainer: Any) -> None:
        self.wire = wire
        self.moments: list[Moment] = []
        self.lengths: list[list[int]] = []
        self._generate, self._score = trainer._generate, trainer._generate_and_score_completions
        trainer._generate, trainer._generate_and_score_completions = self.generate, self.score

    def generate(self, prompts: Any) -> Any:
        result = self._generate(prompts)
        self.moments.append(now())
        self.lengths = [[len(prompt), len(answer)] for prompt, answer in zip(result[0], result[1], strict=True)]
        return result

    def score(self, inputs: Any) -> Any:
        if self.moments:
            self.wire.done(report([*self.moments, now()], self.lengths))
        self.wire.wait()
        self.moments = [now()]
        result = self._score(inputs)
        self.moments.append(now())
        return result


def drive(job: dict[str, Any]) -> None:
    wire = Wire()
    import torch
    from datasets import Dataset
    from transformers import AutoTokenizer

    imported = memory()
    directory = Path(job["directory"])
    policy, reward = str(directory / "policy"), str(directory / "reward")
    texts = json.loads((directory / "workload.json").read_text())["texts"][: len(job["prompts"])]
    config, trainer = group_trainer(job["algorithm"])
    run = trainer(
        model=policy,
        reward_funcs=reward,
        args=config(**settings(job)),
        processing_class=AutoTokenizer.from_pretrained(policy, padding_side="left"),
        # The same prompts in the same order every time, without the pause at the end of an epoch.
        train_dataset=Dataset.from_dict({"prompt": texts * ITERATIONS}),
    )
    Gate(wire, run)
    wire.ready({"threads": torch.get_num_threads(), "memory_imported": imported, "memory_loaded": memory()})
    run.train()


def settings(job: dict[str, Any]) -> dict[str, Any]:
    samples = len(job["prompts"]) * job["samples_per_prompt"]
    rows = min(job["rows"], samples // job["minibatches"])
    return PLAIN | {
        "output_dir": str(Path(job["directory"]) / "trl"),
        "model_init_kwargs": {"dtype": "float32"},
        "per_device_train_batch_size": rows,
        "steps_per_generation": samples // rows,
        "gradient_accumulation_steps": samples // job["minibatches"] // rows,
        "num_generations": job["samples_per_prompt"],
        "num_iterations": job["epochs"],
        "max_steps": ITERATIONS * job["epochs"] * job["minibatches"],
        "max_completion_length": job["new_tokens"],
        "temperature": 1.0,
        "beta": job["beta"],
        "learning_rate": job["lr"],
        "shuffle_dataset": False,
        "save_strategy": "no",
        "eval_strategy": "no",
        "logging_strategy": "no",
        "seed": 0,
    }


if __name__ == "__main__":
    serve(drive)
