"""A stand-in for TRL's GRPO and RLOO trainers: transformers' own Trainer, whose steps sample groups of completions.

Hooks, checkpoints, resume, optimiser and scheduler are the real ones. What is made up here is what TRL adds: sampling,
the call of the reward functions, and the attributes and numbers that the guard reads (`beta`, `ref_model`,
`reward_funcs`, `reward_weights`, `_calculate_rewards`, `generation_config`, `eos_token_ids`, `_metrics`,
`_buffered_inputs`), named and shaped as in TRL 1.16.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather
from transformers import AutoTokenizer, GenerationConfig, Trainer, TrainingArguments

from holdfast.models.load import load_causal_lm

GROUP = 4


@dataclass
class GroupArguments(TrainingArguments):
    num_generations: int = field(default=GROUP)
    generation_batch_size: int = field(default=16)
    temperature: float = field(default=1.0)
    max_completion_length: int = field(default=8)
    sync_ref_model: bool = field(default=False)


class GroupTrainer(Trainer):
    """One generation a step; the loss is REINFORCE with the group's mean as baseline, and beta times KL."""

    def __init__(self, model: Any, tokenizer: Any, reward_funcs: list[Any], args: Any, prompts: list[Any], beta: float):
        rows = [prompt if isinstance(prompt, dict) else {"prompt": prompt} for prompt in prompts]
        super().__init__(model, args, data_collator=list, train_dataset=rows, processing_class=tokenizer)  # type: ignore[arg-type]
        self.beta, self.reward_funcs = beta, reward_funcs
        self.reward_weights = torch.ones(len(reward_funcs))
        self.reward_func_names = [getattr(function, "__name__", type(function).__name__) for function in reward_funcs]
        self._pending_metrics: Any = defaultdict(list)
        self.ref_model = copy.deepcopy(model).eval() if beta else None
        self.eos_token_ids = [tokenizer.eos_token_id]
        self.generation_config = GenerationConfig(
            max_new_tokens=args.max_completion_length,
            do_sample=True,
            temperature=args.temperature,
            top_k=0,
            top_p=1.0,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=self.eos_token_ids,
        )
        self._metrics: dict[str, Any] = {"train": defaultdict(list)}
        self._buffered_inputs: Any = None
        self.model_accepts_loss_kwargs = False

    def _prepare_inputs(self, inputs: Any) -> Any:
        return inputs

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        prompts = [row["prompt"] for row in inputs for _ in range(GROUP)]
        whole_BT, width = self._generate(model, prompts)
        completions_BT = whole_BT[:, width:]
        ends_BT = completions_BT == self.eos_token_ids[0]
        mask_BT = ends_BT.cumsum(1) - ends_BT.long() == 0
        ids = [row[keep].tolist() for row, keep in zip(completions_BT, mask_BT, strict=True)]
        texts = self.processing_class.batch_decode(ids, skip_special_tokens=True)
        if not isinstance(prompts[0], str):
            texts = [[{"role": "assistant", "content": text}] for text in texts]
        self._buffered_inputs = ids
        rewards_BF = self._calculate_rewards([row for row in inputs for _ in range(GROUP)], prompts, texts, ids)
        mine = slice(self.accelerator.process_index * len(ids), (self.accelerator.process_index + 1) * len(ids))
        rewards_B = (rewards_BF[mine] * self.reward_weights).nansum(1)
        advantage_B = rewards_B - rewards_B.view(-1, GROUP).mean(1).repeat_interleave(GROUP)
        logprobs_BT, entropy_BT = self._logprobs(model, whole_BT, width)
        tokens, kl_BT = mask_BT.sum(), torch.zeros(mask_BT.shape)
        if self.beta:
            with torch.no_grad():
                reference_BT, _ = self._logprobs(self.ref_model, whole_BT, width)
            ratio_BT = reference_BT - logprobs_BT
            kl_BT = ratio_BT.exp() - ratio_BT - 1.0
            self._metrics["train"]["kl"].append(float((kl_BT.detach() * mask_BT).sum() / tokens))
        self._metrics["train"]["entropy"].append(float((entropy_BT * mask_BT).sum() / tokens))
        loss_BT = -advantage_B[:, None] * logprobs_BT + self.beta * kl_BT
        return (loss_BT * mask_BT).sum() / tokens

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        columns = {key: [row[key] for row in inputs] for key in inputs[0] if key != "prompt"}
        more = {"trainer_state": self.state, "log_metric": lambda name, x: self._pending_metrics[name].append(x)}
        given = []
        for function in self.reward_funcs:
            asked = {"prompts": prompts, "completions": completions, "completion_ids": completion_ids_list}
            values = function(**asked, **more, **columns)
            given.append([float("nan") if value is None else float(value) for value in values])
        return gather(torch.tensor(given).T.contiguous())

    def _generate(self, model: Any, prompts: list[Any]) -> tuple[torch.Tensor, int]:
        tokenizer = self.processing_class
        rows = [
            tokenizer(p)["input_ids"]
            if isinstance(p, str)
            else tokenizer.apply_chat_template(p, add_generation_prompt=True, tokenize=True, return_dict=True)[
                "input_ids"
            ]
            for p in prompts
        ]
        width = max(map(len, rows))
        ids_BT = torch.tensor([[tokenizer.pad_token_id] * (width - len(r)) + list(r) for r in rows])
        mask_BT = torch.tensor([[0] * (width - len(r)) + [1] * len(r) for r in rows])
        self._prompt_mask = mask_BT
        with torch.no_grad():
            bare = self.accelerator.unwrap_model(model)
            whole = bare.generate(input_ids=ids_BT, attention_mask=mask_BT, generation_config=self.generation_config)
        return whole, width

    def _logprobs(self, model: Any, whole_BT: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        after_BT = torch.ones(len(whole_BT), whole_BT.shape[1] - width, dtype=torch.long)
        logits = model(input_ids=whole_BT, attention_mask=torch.cat([self._prompt_mask, after_BT], 1)).logits
        logprobs_BTV = logits[:, width - 1 : -1].log_softmax(-1)
        chosen_BT = logprobs_BTV.gather(-1, whole_BT[:, width:, None]).squeeze(-1)
        return chosen_BT, -(logprobs_BTV.exp() * logprobs_BTV).sum(-1).detach()

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        logs.update({name: sum(values) / len(values) for name, values in self._metrics["train"].items()})
        super().log(logs, start_time)
        self._metrics["train"].clear()


def trainer_of(
    reference: Path, rewards: Any, output: Path, prompts: list[Any], steps: int = 8, beta: float = 0.1, **arguments: Any
) -> GroupTrainer:
    """A trainer over the model in a directory, with everything that has to be equal in two equal runs fixed."""
    torch.manual_seed(0)
    model, _ = load_causal_lm(reference)
    given: dict[str, Any] = {
        "output_dir": str(output), "max_steps": steps, "per_device_train_batch_size": 4, "learning_rate": 0.01,
        "use_cpu": True, "report_to": "none", "disable_tqdm": True, "save_steps": 2, "logging_steps": 1, "seed": 5,
        "remove_unused_columns": False, "lr_scheduler_type": "linear", "logging_strategy": "steps",
    } | arguments  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(reference, padding_side="left")
    functions = rewards if isinstance(rewards, list) else [rewards]
    return GroupTrainer(model, tokenizer, functions, GroupArguments(**given), prompts, beta)
