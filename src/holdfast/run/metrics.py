"""What is measured of a step's answers, by the names of the metric registry."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from holdfast.reward.source import Scored
from holdfast.train.ppo import Experience


def step_metrics(experience: Experience, scored: Scored) -> dict[str, float]:
    """Reward, KL, entropy and what the answers look like."""
    rollout, reward = experience.rollout, float(experience.rewards_B.mean())
    return {
        **scored.metrics(),
        "objective/kl": float(experience.kl_B.mean()),
        "objective/rlhf_reward": reward,
        "objective/non_score_reward": reward - float(scored.rewards_B.mean()),
        "objective/entropy": -float((rollout.logprobs_BT * rollout.mask_BT).sum(1).mean()),
        "response/length_mean": sum(rollout.lengths) / len(rollout.lengths),
        "response/length_max": float(max(rollout.lengths)),
        "response/unfinished": 1.0 - sum(rollout.finished) / len(rollout.finished),
        "response/distinct2": distinct_bigrams(rollout.responses),
        **({} if rollout.server_gap is None else {"rollout/server_gap": rollout.server_gap}),
    }


def distinct_bigrams(responses: Sequence[Sequence[int]]) -> float:
    """Different pairs of neighbouring tokens over all such pairs in the batch; low when answers repeat."""
    pairs = [pair for r in responses for pair in pairwise(r)]
    return len(set(pairs)) / len(pairs) if pairs else 1.0
