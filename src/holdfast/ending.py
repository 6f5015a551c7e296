"""What a run ends with: the mean of the policies of its last rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from holdfast.models.sharding import put_state, whole_state
from holdfast.ppo import response_values
from holdfast.randomness import generator

if TYPE_CHECKING:
    from holdfast.loop import OnlineLoop


def take_mean(loop: OnlineLoop) -> None:
    """Put the mean in the policy's place before people are asked about it, and tell its KL to the reference."""
    put_state(loop.policy, loop.averaging.mean_with(whole_state(loop.policy)))
    rng = generator(loop.config.run.seed, "mean of policies")
    rows = torch.randint(len(loop.prompt_ids), (loop.config.ppo.batch,), generator=rng).tolist()
    rollout = loop.sample(loop.policy, [loop.prompt_ids[i] for i in rows], rng)
    temperature = loop.config.rollout.temperature
    reference_BT = response_values(loop.reference, rollout, loop.ppo.batches(rollout), temperature)
    kl_B = ((rollout.logprobs_BT - reference_BT) * rollout.mask_BT).sum(1)
    loop.event("averaged", policies=loop.averaging.policies + 1, kl=float(kl_B.mean()))
