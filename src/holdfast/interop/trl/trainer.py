"""What is read of a trainer of TRL's, and which trainers can be guarded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from holdfast.errors import HoldfastError
from holdfast.interop.trl.texts import Row, TRLPrompt
from holdfast.randomness import generator

# What the guard reads of a trainer, or changes.
NEEDED = (
    "beta",
    "ref_model",
    "reward_funcs",
    "reward_weights",
    "processing_class",
    "accelerator",
    "_calculate_rewards",
)
# Prompts that audits and baselines are drawn from: enough that few come twice, few enough to encode at the start.
AUDIT_PROMPTS = 2000


def bare_model(trainer: Any) -> nn.Module:
    """The trainer's model without what a launcher has wrapped around it."""
    model: nn.Module = trainer.accelerator.unwrap_model(trainer.model)
    return model


def has_adapters(trainer: Any) -> bool:
    """Whether adapters are trained, so that the model without them is where it began."""
    return bool(getattr(bare_model(trainer), "peft_config", None))


def tokenizer_of(trainer: Any) -> Any:
    """The text side of the trainer's processing class."""
    return getattr(trainer.processing_class, "tokenizer", trainer.processing_class)


def end_ids_of(trainer: Any) -> frozenset[int]:
    """The tokens that end a completion."""
    ends = getattr(trainer, "eos_token_ids", None) or [tokenizer_of(trainer).eos_token_id]
    return frozenset(int(i) for i in ends)


def rows_of(trainer: Any, given: Sequence[TRLPrompt | Row] | None, seed: int) -> list[Row]:
    """The rows that audits ask about: those that were given, or those of the training set; of many a draw."""
    if given is None:
        dataset = trainer.train_dataset
        if not hasattr(dataset, "__len__"):
            raise HoldfastError("The training set is a stream; give the callback prompts to ask about in audits.")
        places: Any = range(len(dataset))
        if len(places) > AUDIT_PROMPTS:
            order = torch.randperm(len(places), generator=generator(seed, "audit prompts"))
            places = order[:AUDIT_PROMPTS].tolist()
        given = [dataset[i] for i in places]
    if not len(given):
        raise HoldfastError("There is no prompt to ask about in audits; give the callback some.")
    return [dict(row) if isinstance(row, Mapping) else {"prompt": row} for row in given]


def check_trainer(trainer: Any) -> None:
    """Refuse, in one sentence, a trainer over which the guard would have no power."""
    for name in NEEDED:
        if not hasattr(trainer, name):
            raise HoldfastError(f"The trainer has no {name}; attach to a GRPOTrainer or an RLOOTrainer of TRL's.")
    if getattr(trainer, "is_deepspeed_enabled", False):
        raise HoldfastError(
            "The trainer's weights are sharded by DeepSpeed, which the guard cannot put back; use FSDP2."
        )
    if getattr(trainer, "is_fsdp_enabled", False) and int(trainer.accelerator.state.fsdp_plugin.fsdp_version) != 2:
        raise HoldfastError("The trainer's weights are sharded by FSDP 1, which the guard cannot put back; use FSDP2.")
    if getattr(trainer.args, "sync_ref_model", False):
        raise HoldfastError("With sync_ref_model the reference follows the policy into a hack; set it to False.")
    if getattr(trainer, "environments", None) is not None:
        raise HoldfastError(
            "The trainer's rewards come from environments, which audits cannot ask; leave the guard out."
        )
