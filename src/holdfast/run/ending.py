"""What a run ends with: the mean of the policies of its last rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from holdfast.models.sharding import put_state, whole_state
from holdfast.randomness import generator
from holdfast.train.ppo import response_values

if TYPE_CHECKING:
    from holdfast.run.loop import OnlineLoop


def take_mean(loop: OnlineLoop) -> None:
    """Put the mean in the policy's place before people are asked about it, and tell what it is like on a batch."""
    averaging, policies = loop.averaging, loop.averaging.policies + 1
    put_state(loop.policy, averaging.mean_with(whole_state(loop.policy)))
    averaging.restore({})  # it is in the policy now
    rng = generator(loop.config.run.seed, "mean of policies")
    rows = torch.randint(len(loop.prompt_ids), (loop.config.ppo.batch,), generator=rng).tolist()
    rollout = loop.sample(loop.policy, [loop.prompt_ids[i] for i in rows], rng)
    temperature = loop.config.rollout.temperature
    reference_BT = response_values(loop.reference, rollout, loop.ppo.batches(rollout), temperature)
    kl_B = ((rollout.logprobs_BT - reference_BT) * rollout.mask_BT).sum(1)
    scores_B, length = loop.rewarding.reward(rollout, rng).scores_B, sum(rollout.lengths) / len(rows)
    loop.event("averaged", policies=policies, kl=float(kl_B.mean()), score=float(scores_B.mean()), length=length)
