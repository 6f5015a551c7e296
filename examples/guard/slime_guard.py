"""slime: its log functions, which post every rollout and every evaluation to `holdfast guard serve`.

    --custom-rm-path slime_guard.custom_rm
    --custom-rollout-log-function-path slime_guard.log_rollout
    --custom-eval-rollout-log-function-path slime_guard.log_evaluation
    --eval-prompt-data audits AUDITS.jsonl --eval-interval EVERY --n-samples-per-eval-prompt 1

Put your own reward into `reward`. This file has to be on PYTHONPATH, and HOLDFAST_GUARD_URL, HOLDFAST_GUARD_TOKEN and
HOLDFAST_GUARD_TRAINING in the environment of Ray's workers. The evaluation set is that of the audits' prompts;
`supervise.py` begins the training with them, and carries out what the guard advises.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from holdfast.interop.guard_client import GuardClient, GuardedTraining, in_columns

# Answers in one request.
MOST = 512


def reward(prompt: Any, answer: str, label: Any) -> Mapping[str, float]:
    """Yours: numbers by component."""
    return {"correct": float(label is not None and str(label) in answer), "brief": -len(answer.split()) / 1000.0}


@lru_cache(1)
def guarded() -> tuple[GuardedTraining, list[Any]]:
    """The training, and the audits' prompts."""
    training = GuardClient.of().training(os.environ["HOLDFAST_GUARD_TRAINING"])
    return training, training.settings()["prompts"]


async def custom_rm(args: Any, sample: Any, **other: Any) -> float:
    """The reward of one answer, without what the guard has had down-weighted. Components are kept in its metadata."""
    parts = reward(sample.prompt, sample.response, sample.label)
    sample.metadata = {**(sample.metadata or {}), "components": dict(parts)}
    weights = guarded()[0].state.get("discounts", {})
    return float(sum(weights.get(name, 1.0) * value for name, value in parts.items()))


def log_rollout(rollout_id: int, args: Any, samples: Sequence[Any], extra: Any, seconds: float) -> bool:
    """Post a whole rollout; slime goes on to log it as well."""
    flat = [sample for each in samples for sample in (each if isinstance(each, list) else [each])]
    post(flat, f"rollout-{rollout_id}", step=rollout_id + 1, checkpoint=f"iter_{rollout_id:07d}")
    return False


def log_evaluation(rollout_id: int, args: Any, data: Mapping[str, Any], extra: Any = None) -> bool:
    """Post the evaluation on the audits' prompts."""
    samples = [sample for each in data.values() for sample in each.get("samples") or ()]
    post(samples, f"evaluation-{rollout_id}", of="evaluation", step=rollout_id)
    return False


def post(samples: Sequence[Any], name: str, **about: Any) -> None:
    """Samples with their rewards and, of a rollout, their log-probs; a rollout that is made again is another batch."""
    training, audited = guarded()
    run = os.environ.get("HOLDFAST_GUARD_RUN", "0")  # `supervise.py` counts its starts
    for first in range(0, len(samples), MOST):
        some = samples[first : first + MOST]
        rewards = [(sample.metadata or {}).get("components", sample.reward) for sample in some]
        logprobs = [sample.rollout_log_probs for sample in some]
        training.post(
            [own_prompt(sample.prompt, audited) if about.get("of") else sample.prompt for sample in some],
            [sample.response for sample in some],
            **in_columns(rewards),
            finished=[sample.status.value == "completed" for sample in some],
            tokens=[int(sample.response_length) for sample in some],
            logprobs=logprobs if all(logprobs) else None,
            id=f"{run}-{name}-{first}",
            **about,
        )


def own_prompt(prompt: Any, audited: Sequence[Any]) -> Any:
    """An audit's prompt as the training began with it; slime's may have been through the chat template."""
    if prompt in audited:
        return prompt
    return next((each for each in audited if isinstance(each, str) and each in str(prompt)), prompt)
