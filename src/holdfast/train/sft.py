"""Supervised fine-tuning: the policy imitates demonstrations and becomes the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from holdfast.algorithms.sft import sft_loss
from holdfast.config.schema import SFTConfig
from holdfast.control.schedule import RefreshSchedule
from holdfast.errors import MetByAll
from holdfast.models.batches import MicroBatch, micro_batches
from holdfast.models.codec import Codec
from holdfast.models.gradients import accumulate, clip_and_step
from holdfast.models.policy import Policy
from holdfast.models.weights import learning
from holdfast.parallel.cores import CORES
from holdfast.parallel.processes import PROCESSES
from holdfast.preferences.comparison import Demonstration
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
    with PROCESSES.joint("begin imitating", [policy], config=config, pad_id=pad_id, max_tokens=max_tokens):
        imitating = Imitator(policy, config, pad_id, max_tokens)
    schedule = RefreshSchedule(config.lr, config.warmup_steps, config.epochs * per_epoch)
    progress.begin("sft", config.epochs * per_epoch)
    update, epoch_losses = 0, [0.0]
    for _ in range(config.epochs):
        order = torch.randperm(len(prompts), generator=rng).tolist()
        epoch_losses = []
        for start in range(0, len(order), config.batch):
            # In the order of the demonstrations: how ties of length are cut into batches must not depend on the draw.
            rows = sorted(order[start : start + config.batch])
            loss = imitating.update([prompts[i] for i in rows], [responses[i] for i in rows], schedule.at(update))
            update += 1
            epoch_losses.append(loss)
            progress.advance(loss=loss)
            after_update(update)
    return sum(epoch_losses) / len(epoch_losses)


BAD_GRADIENT = "Supervised fine-tuning met a gradient that is not a number; lower sft.lr."


class Imitator:
    """A policy with the optimiser that moves it towards given answers."""

    def __init__(self, policy: Policy, config: SFTConfig, pad_id: int, max_tokens: int) -> None:
        self.policy, self.config, self.pad_id, self.max_tokens = policy, config, pad_id, max_tokens
        self.parameters = learning(policy.lm)
        self.optimiser = torch.optim.AdamW(
            self.parameters, lr=config.lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True
        )

    def update(self, prompts: Sequence[list[int]], responses: Sequence[list[int]], lr: float) -> float:
        """One update on these answers, by all processes where there are several; returns the loss."""
        with PROCESSES.joint("imitate", [self.policy], prompts=list(prompts), responses=list(responses), lr=lr):
            return self._update(prompts, responses, lr)

    def _update(self, prompts: Sequence[list[int]], responses: Sequence[list[int]], lr: float) -> float:
        policy = self.policy
        pieces = CORES.free if policy.fast is not None else 0
        token_count = sum(len(r) for r in responses)
        batches = micro_batches(
            prompts, responses, range(len(prompts)), self.pad_id, self.max_tokens, policy.device, pieces
        )
        losses = accumulate(self.parameters, batches, partial(_loss, policy, token_count))
        for group in self.optimiser.param_groups:
            group["lr"] = lr
        clip_and_step(self.optimiser, MetByAll(BAD_GRADIENT))
        return PROCESSES.total([sum(losses)])[0]


def _loss(policy: Policy, token_count: int, batch: MicroBatch) -> tuple[Tensor, float]:
    logprobs_N = policy(batch).logprobs_N
    loss = sft_loss(logprobs_N, torch.ones_like(logprobs_N), token_count)
    return loss, float(loss.detach())
