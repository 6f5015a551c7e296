"""Supervised fine-tuning: the policy imitates demonstrations and becomes the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from holdfast.algorithms.finite import all_finite
from holdfast.algorithms.sft import sft_loss
from holdfast.config.schema import SFTConfig
from holdfast.control.schedule import RefreshSchedule
from holdfast.cores import CORES
from holdfast.errors import HoldfastError
from holdfast.models.codec import Codec
from holdfast.models.gradients import accumulate
from holdfast.models.policy import Policy
from holdfast.preferences.types import Demonstration
from holdfast.rollout.batches import MicroBatch, micro_batches
from holdfast.track.progress import Progress


def fine_tune(
    policy: Policy,
    codec: Codec,
    demonstrations: Sequence[Demonstration],
    config: SFTConfig,
    max_tokens: int,
    rng: torch.Generator,
    progress: Progress,
    after_update: Callable[[int], None] = lambda update: None,
) -> float:
    """Minimise cross-entropy of the demonstrations' answers; returns the mean loss of the last epoch."""
    prompts = [codec.encode_prompt(d.prompt) for d in demonstrations]
    responses = [codec.encode_response(d.response) for d in demonstrations]
    return imitate(policy, prompts, responses, config, codec.pad_id, max_tokens, rng, progress, after_update)


def imitate(
    policy: Policy,
    prompts: Sequence[list[int]],
    responses: Sequence[list[int]],
    config: SFTConfig,
    pad_id: int,
    max_tokens: int,
    rng: torch.Generator,
    progress: Progress,
    after_update: Callable[[int], None] = lambda update: None,
) -> float:
    """The same for answers as tokens. `after_update` is called with the number of updates made, from 1."""
    per_epoch = -(-len(prompts) // config.batch)
    parameters = [p for p in policy.lm.parameters() if p.requires_grad]
    pieces = CORES.free if policy.fast is not None else 0
    optimiser = torch.optim.AdamW(parameters, lr=config.lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    schedule = RefreshSchedule(config.lr, config.warmup_steps, config.epochs * per_epoch)
    progress.begin("sft", config.epochs * per_epoch)
    update, epoch_losses = 0, [0.0]
    for _ in range(config.epochs):
        order = torch.randperm(len(prompts), generator=rng).tolist()
        epoch_losses = []
        for start in range(0, len(order), config.batch):
            rows = order[start : start + config.batch]
            token_count = sum(len(responses[i]) for i in rows)
            batches = micro_batches(prompts, responses, rows, pad_id, max_tokens, policy.device, pieces)
            loss_sum = sum(accumulate(parameters, batches, partial(_loss, policy, token_count)))
            norm = torch.nn.utils.clip_grad_norm_(parameters, config.max_grad_norm)
            if not all_finite([norm]):
                raise HoldfastError("Supervised fine-tuning met a gradient that is not a number; lower sft.lr.")
            for group in optimiser.param_groups:
                group["lr"] = schedule.at(update)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            update += 1
            epoch_losses.append(loss_sum)
            progress.advance(loss=loss_sum)
            after_update(update)
    return sum(epoch_losses) / len(epoch_losses)


def _loss(policy: Policy, token_count: int, batch: MicroBatch) -> tuple[Tensor, float]:
    logprobs_N = policy(batch).logprobs_N
    loss = sft_loss(logprobs_N, torch.ones_like(logprobs_N), token_count)
    return loss, float(loss.detach())
