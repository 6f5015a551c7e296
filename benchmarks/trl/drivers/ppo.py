# mypy: disable-error-code="import-not-found"
"""TRL's PPO, one iteration at a time: JOB is the JSON of a `Job`.

An iteration is a pass through the loop of `PPOTrainer.train`, from one batch of prompts to the next: generation,
scoring (reference, critic, reward model), all epochs, and the trainer's own bookkeeping. Settings are the trainer's
defaults but for what both sides have to share, and for what would only cost it time here: checkpoints, gradient
checkpointing, half precision, samples for show, reports.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.speed.wire import Moment, Wire, answer_length, now, report, serve
from benchmarks.trl.drivers.trainers import PLAIN
from holdfast.track.memory import memory

# More than anybody waits for; the learning rate is spread over them.
ITERATIONS = 10_000


class Gate:
    """Stands in for the trainer's data loader: holds each batch back until the benchmark asks for an iteration."""

    def __init__(self, wire: Wire, loader: Any, end_id: int | None) -> None:
        self.wire, self.loader, self.end_id = wire, loader, end_id
        self.moments: list[Moment] = []
        self.queries: Any = None
        self.responses: Any = None

    def __iter__(self) -> Iterator[Any]:
        for batch in self.loader:
            if self.moments:
                self._report()
            self.wire.wait()
            self.queries = batch["attention_mask"]
            self.moments = [now()]
            yield batch

    def wrap_generation(self, generate: Any) -> Any:
        def timed(model: Any, queries: Any, *rest: Any) -> Any:
            result = generate(model, queries, *rest)
            self.moments.append(now())
            self.responses = result[0][:, queries.shape[1] :]
            return result

        return timed

    def before_update(self, *_: Any) -> None:
        """The whole model, policy and critic together, is only called to be trained; its first call ends scoring."""
        if len(self.moments) == 2:
            self.moments.append(now())

    def _report(self) -> None:
        self.moments.append(now())
        lengths = [
            [int(mask.sum()), answer_length(response.tolist(), self.end_id)]
            for mask, response in zip(self.queries, self.responses, strict=True)
        ]
        self.wire.done(report(self.moments, lengths))


def drive(job: dict[str, Any]) -> None:
    wire = Wire()
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
    from trl.experimental import ppo
    from trl.experimental.ppo import ppo_trainer

    imported = memory()
    directory = Path(job["directory"])
    tokenizer = AutoTokenizer.from_pretrained(directory / "policy", padding_side="left")
    if not job["ends"]:
        # The trainer ends an answer at a padding token, so padding must be a token that the model cannot draw.
        tokenizer.add_special_tokens({"pad_token": "<never>"})
    policy, reference = (
        AutoModelForCausalLM.from_pretrained(directory / "policy", dtype=torch.float32) for _ in range(2)
    )
    reward, value = (
        AutoModelForSequenceClassification.from_pretrained(directory / "reward", num_labels=1, dtype=torch.float32)
        for _ in range(2)
    )
    trainer = ppo.PPOTrainer(
        args=ppo.PPOConfig(**settings(job)),
        processing_class=tokenizer,
        model=policy,
        ref_model=reference,
        reward_model=reward,
        value_model=value,
        train_dataset=Dataset.from_dict({"input_ids": job["prompts"]}),
    )
    gate = Gate(wire, trainer.dataloader, tokenizer.eos_token_id if job["ends"] else None)
    trainer.dataloader = gate
    ppo_trainer.batch_generation = gate.wrap_generation(ppo_trainer.batch_generation)
    trainer.model.register_forward_pre_hook(gate.before_update)
    wire.ready({"threads": torch.get_num_threads(), "memory_imported": imported, "memory_loaded": memory()})
    trainer.train()


def settings(job: dict[str, Any]) -> dict[str, Any]:
    samples = len(job["prompts"])
    # All rows at once: the optimiser steps after each minibatch, as `num_mini_batches` says. Fewer rows: this trainer
    # steps once per epoch, however many minibatches there are.
    rows = min(job["rows"], samples)
    return PLAIN | {
        "output_dir": str(Path(job["directory"]) / "trl"),
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": samples // rows,
        "local_rollout_forward_batch_size": samples,
        "total_episodes": samples * ITERATIONS,
        "num_ppo_epochs": job["epochs"],
        "num_mini_batches": job["minibatches"],
        "response_length": job["new_tokens"],
        "stop_token": "eos" if job["ends"] else None,
        "temperature": 1.0,
        "kl_coef": job["beta"],
        "learning_rate": job["lr"],
        "num_sample_generations": 0,
        "save_strategy": "no",
        "eval_strategy": "no",
        "seed": 0,
    }


if __name__ == "__main__":
    serve(drive)
