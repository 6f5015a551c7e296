"""OpenRLHF: a reward function in a file, which posts every answer with its reward to `holdfast guard serve`.

    --reward.remote_url examples/guard/openrlhf_guard.py
    --eval.dataset AUDITS --eval.steps EVERY --eval.n_samples_per_prompt 1

Put your own reward into `reward`. HOLDFAST_GUARD_URL, HOLDFAST_GUARD_TOKEN and HOLDFAST_GUARD_TRAINING have to be in
the environment of Ray's workers. The evaluation set is that of the audits' prompts; `supervise.py` begins the training
with them, and carries out what the guard advises. OpenRLHF does not evaluate before its first step: start the guard
with --reference-url, an endpoint of the model that the training begins with.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from holdfast.interop.guard_client import AnswerPoster, GuardClient

# What stands for the end of an answer in the queries, which are decoded with special tokens.
ENDS = ("<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|endoftext|>", "</s>", "<eos>")


def reward(prompt: str, answer: str, label: Any) -> Mapping[str, float]:
    """Yours: numbers by component."""
    return {"correct": float(label is not None and str(label) in answer), "brief": -len(answer.split()) / 1000.0}


@lru_cache(1)
def guarded() -> tuple[AnswerPoster, list[str]]:
    """The training, and the audits' prompts."""
    training = GuardClient.of().training(os.environ["HOLDFAST_GUARD_TRAINING"])
    return AnswerPoster(training), training.settings()["prompts"]


def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any], **other: Any) -> dict[str, Any]:
    """What OpenRLHF calls, with one answer at a time and in several threads."""
    import torch

    poster, audited = guarded()
    total: list[float] = []
    for query, prompt, label in zip(queries, prompts, labels, strict=True):
        text = query.removeprefix(prompt)
        answer = without_end(text)
        parts = reward(prompt, answer, label)
        # The prompt has been through the chat template, and the audits' prompts have not.
        own = next((each for each in audited if each in prompt), None)
        about = {"of": "policy" if own is None else "evaluation"}
        state = poster.add(own or prompt, answer, parts, about, finished=answer != text.strip())
        weights = state.get("discounts", {})
        total.append(sum(weights.get(name, 1.0) * value for name, value in parts.items()))
    rewards = torch.tensor(total)
    return {
        "rewards": rewards,
        "scores": rewards,
        "extra_logs": {"guard_alarm": torch.full_like(rewards, alarm(state))},
    }


def without_end(text: str) -> str:
    """An answer without its end token."""
    answer = text.strip()
    for end in ENDS:
        answer = answer.removesuffix(end)
    return answer.strip()


def alarm(state: Mapping[str, Any]) -> float:
    """1 while the newest verdict is an alarm, for the trainer's own log."""
    return float((state.get("verdict") or {}).get("level") in ("hacking", "worse"))
