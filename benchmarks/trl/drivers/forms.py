# mypy: disable-error-code="import-not-found"
"""Short guarded runs over the forms that rewards and losses take in TRL: what the guard saw, and that it went back.

Runs in TRL's own environment; prints a line of JSON for each form. People are simulated by a rule that likes short
answers, and one function pays for words, so that every form is a hack.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoConfig, AutoTokenizer, LlamaForSequenceClassification

from benchmarks.trl.drivers.trainers import PLAIN, group_trainer
from holdfast.config.schema import AuditConfig
from holdfast.interop.trl import HoldfastCallback

FORMS: dict[str, dict[str, Any]] = {
    "dapo, its default": {},
    "grpo with a reward model and weights": {"loss_type": "grpo", "reward_weights": [1.0, 2.0, 0.1]},
    "bnpo, normalised one by one, two passes": {
        "loss_type": "bnpo", "multi_objective_aggregation": "normalize_then_sum", "num_iterations": 2,
    },
    "dr_grpo": {"loss_type": "dr_grpo"},
    "cispo": {"loss_type": "cispo"},
    "rloo at beta 0": {"algorithm": "rloo", "beta": 0.0},
    "LoRA": {"lora": True, "learning_rate": 0.05},
}  # fmt: skip


def words(completions: Sequence[Any], **columns: object) -> list[float | None]:
    """Pays for words; the first answer of each batch cannot be scored."""
    paid = [0.1 * len(completion[0]["content"].split()) for completion in completions]
    return [None, *paid[1:]]


async def named(completions: Sequence[Any], topic: Sequence[str], **columns: object) -> list[float]:
    """Whether the topic, a column of the dataset, is named; asked asynchronously."""
    await asyncio.sleep(0)
    return [float(one in completion[0]["content"]) for completion, one in zip(completions, topic, strict=True)]


def shorter(prompt: str, a: str, b: str) -> str:
    return "tie" if len(a) == len(b) else "a" if len(a) < len(b) else "b"


def drive(model: str, output: Path, form: dict[str, Any]) -> dict[str, Any]:
    """One run of six steps with an audit after three and at the end."""
    changes = dict(form)
    arguments, trainer_class = group_trainer(changes.pop("algorithm", "grpo"))
    adapters = LoraConfig(r=8, target_modules=["q_proj", "v_proj"]) if changes.pop("lora", False) else None
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    functions: list[Any] = [words, named]
    if "reward_weights" in changes:
        torch.manual_seed(1)
        config = AutoConfig.from_pretrained(model, num_labels=1, pad_token_id=tokenizer.pad_token_id)
        functions.append(LlamaForSequenceClassification(config))
    questions = [f"We plan to visit you, are dogs allowed number {n}?" for n in range(16)]
    rows = [{"prompt": [{"role": "user", "content": text}], "topic": "dogs"} for text in questions]
    settings = {
        "output_dir": str(output), "max_steps": 6, "per_device_train_batch_size": 16, "num_generations": 8,
        "max_completion_length": 16, "learning_rate": 1e-3, "logging_steps": 6, "save_strategy": "no",
        "model_init_kwargs": {"dtype": "float32"},
    }  # fmt: skip
    trainer = trainer_class(
        model=model, reward_funcs=functions, args=arguments(**PLAIN | settings | changes), processing_class=tokenizer,
        reward_processing_classes=[None, None, tokenizer][: len(functions)], train_dataset=Dataset.from_list(rows),
        peft_config=adapters,
    )  # fmt: skip
    weights = trainer.reward_weights.tolist()
    callback = HoldfastCallback(shorter, every=3, audit=AuditConfig(pairs=24, more_pairs=24), say=lambda line: None)
    callback.attach(trainer)
    trainer.train()
    events = [json.loads(row) for row in (output / "holdfast" / "events.jsonl").read_text().splitlines()]
    rollbacks = [event for event in events if event["event"] == "rollback"]
    return {
        "loss": str(getattr(trainer, "loss_type", "")),
        "verdicts": [[event["level"], event["sentence"]] for event in events if event["event"] == "verdict"],
        "rollbacks": [[event["step_from"], event["step_to"]] for event in rollbacks],
        "weights": [weights, trainer.reward_weights.tolist()],
        "beta": [float(changes.get("beta", 0.0)), float(trainer.beta)],
        "unscored": [json.loads(row).get("reward/unscored") for row in metrics_of(output)][-1],
    }


def metrics_of(output: Path) -> list[str]:
    return (output / "holdfast" / "metrics.jsonl").read_text().splitlines()


def main(job: dict[str, Any]) -> None:
    """Every form, one after the other."""
    torch.set_num_threads(1)
    found = {}
    for name, form in FORMS.items():
        output = Path(job["output"])
        shutil.rmtree(output, ignore_errors=True)
        found[name] = drive(job["model"], output, form)
    Path(job["found"]).write_text(json.dumps(found))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
