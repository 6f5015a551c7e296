"""The reference of a run: the policy after supervised fine-tuning, written once and sealed."""

from __future__ import annotations

import copy
from typing import Any

import torch

from holdfast.models.load import load_causal_lm, save_model
from holdfast.models.lora import adapted, is_adapted, lora_of, merge_into_base
from holdfast.models.policy import Policy
from holdfast.models.sharding import shard, whole_state
from holdfast.parallel.processes import PROCESSES
from holdfast.randomness import derive_seed, generator
from holdfast.run.directory import RunDirectory
from holdfast.run.inputs import Ingredients
from holdfast.run.probes import data_prober, while_imitating
from holdfast.track.progress import Progress
from holdfast.track.tracker import Tracker
from holdfast.train.sft import fine_tune


def prepare_reference(ingredients: Ingredients, run: RunDirectory, tracker: Tracker, progress: Progress) -> Any:
    """Supervised fine-tuning, or the reference that an earlier attempt has finished."""
    config, task, codec = ingredients.config, ingredients.task, ingredients.codec
    if run.reference.is_dir():
        run.keep_reference_sealed()
        return load_causal_lm(run.reference, config.policy.dtype)[0].to(config.run.device)
    lm = ingredients.lm
    if config.sft.epochs and task.demonstrations:
        with PROCESSES.joint("imitator"):
            policy = imitator(ingredients)
        prober = data_prober(ingredients, run, tracker, "sft", policy.context)
        loss = fine_tune(
            policy,
            codec,
            task.demonstrations,
            config.sft,
            config.policy.micro_batch_tokens,
            generator(config.run.seed, "sft"),
            progress,
            while_imitating(prober, policy, ingredients, len(task.demonstrations)),
        )
        take_in(ingredients, policy)
        PROCESSES.models.clear()
        tracker.event(0, 0, "sft_finished", loss=loss, demonstrations=len(task.demonstrations))
    lm.to(getattr(torch, config.policy.dtype))
    save_model(run.reference, lm, codec)
    run.seal_reference()
    return lm


def imitator(ingredients: Ingredients) -> Policy:
    """The model that fine-tuning moves: the given one, adapters on it, or a copy that is dealt out over the processes.

    A fresh model knows nothing yet that adapters could build on, so all of it learns.
    """
    config, lm = ingredients.config, ingredients.lm
    if config.policy.lora_rank and not ingredients.fresh:
        lm = adapted(lm, lora_of(config.policy), derive_seed(config.run.seed, "sft adapters"))
    elif PROCESSES.sharded:
        lm = copy.deepcopy(lm)
    policy = shard(Policy(lm, fast=config.policy.fast, checkpointing=config.policy.gradient_checkpointing))
    PROCESSES.hold({"imitator": policy})
    return policy


def take_in(ingredients: Ingredients, policy: Policy) -> None:
    """Put what an imitator has learnt into the ingredients' own weights, where it did not work on those."""
    if is_adapted(policy.lm):
        merge_into_base(policy.lm)
    elif policy.lm is not ingredients.lm:
        state = whole_state(policy)
        ingredients.lm.load_state_dict({name.removeprefix("lm."): tensor for name, tensor in state.items()})
