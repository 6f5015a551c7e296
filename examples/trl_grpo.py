"""TRL's GRPO with a Holdfast ensemble for a reward and the guard over it, on the built-in world.

    make run                                       a run directory with a model and an ensemble: runs/concierge-0
    pip install "trl>=1.16"                        into the environment that Holdfast is in
    python examples/trl_grpo.py runs/concierge-0   writes runs/trl-grpo

With data of your own, `prompts` are your dataset, `model` is your model, and `labeller` is a function that is shown a
prompt and two answers and says "a", "b" or "tie".
"""

import sys
from pathlib import Path

from datasets import Dataset
from transformers import AutoTokenizer

from holdfast.interop.trl import HoldfastCallback, ensemble_reward
from holdfast.run.directory import RunDirectory
from holdfast.worlds.registry import load_task, load_world
from trl import GRPOConfig, GRPOTrainer

run = RunDirectory.open(Path(sys.argv[1]))
task = load_task(run.config(), load_world(run.config()))
prompts = [[{"role": "user", "content": str(prompt)}] for prompt in task.prompts]
model, labeller = str(run.reference), task.labeller

reward = ensemble_reward(run.path)
trainer = GRPOTrainer(
    model=model,
    reward_funcs=[reward],
    args=GRPOConfig(
        output_dir="runs/trl-grpo",
        per_device_train_batch_size=64,
        num_generations=8,
        max_completion_length=48,
        max_steps=60,
        learning_rate=1e-3,  # for the small built-in model; a pretrained one wants about 1e-6
        beta=0.05,  # above 0: without a reference model there is nothing to hold the policy to
        bf16=False,
        report_to="none",
    ),
    processing_class=AutoTokenizer.from_pretrained(model, padding_side="left"),
    train_dataset=Dataset.from_dict({"prompt": prompts}),
)
HoldfastCallback(labeller, every=10).attach(trainer)
trainer.train()
trainer.save_model("runs/trl-grpo/final")
