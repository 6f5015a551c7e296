# mypy: disable-error-code="import-not-found"
"""TRL's DPO on one batch: JOB is the JSON of directory, loss and beta.

Writes the loss, and the gradient of every weight, beside the pairs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.trl.drivers.trainers import PLAIN


def drive(job: dict[str, Any]) -> None:
    import torch
    from datasets import Dataset
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import trl

    torch.set_num_threads(1)
    directory = Path(job["directory"])
    pairs = json.loads((directory / "pairs.json").read_text())
    rows = [
        {
            "prompt": [{"role": "user", "content": pair["prompt"]}],
            "chosen": [{"role": "assistant", "content": pair["chosen"]}],
            "rejected": [{"role": "assistant", "content": pair["rejected"]}],
        }
        for pair in pairs
    ]
    policy, reference = (
        AutoModelForCausalLM.from_pretrained(directory / name, dtype="float32") for name in ("policy", "reference")
    )
    settings = trl.DPOConfig(
        output_dir=str(directory / "trl"),
        per_device_train_batch_size=len(rows),
        loss_type=[job["loss"]],
        beta=job["beta"],
        max_length=None,
        save_strategy="no",
        logging_strategy="no",
        seed=0,
        **PLAIN,
    )
    trainer = trl.DPOTrainer(
        model=policy,
        ref_model=reference,
        args=settings,
        processing_class=AutoTokenizer.from_pretrained(directory / "policy"),
        train_dataset=Dataset.from_list(rows),
    )
    batch = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
    loss = trainer.compute_loss(trainer.model, batch)
    loss.backward()
    gradients = {name: p.grad for name, p in trainer.model.named_parameters() if p.grad is not None}
    out = directory / f"trl-{job['loss']}.safetensors"
    save_file({name: gradient.contiguous() for name, gradient in gradients.items()}, str(out))
    tokens = int(batch["completion_mask"].sum())
    (directory / f"trl-{job['loss']}.json").write_text(json.dumps({"loss": float(loss), "tokens": tokens}))


if __name__ == "__main__":
    drive(json.loads(sys.argv[1]))
