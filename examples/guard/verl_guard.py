"""verl: its reward manager, which posts every answer with its reward to `holdfast guard serve`.

    reward.reward_manager.source=importlib
    reward.reward_manager.name=GuardedRewardManager
    reward.reward_manager.module.path=examples/guard/verl_guard.py

Your own reward stays where it is (reward.custom_reward_function), and may return numbers by component beside `score`.
HOLDFAST_GUARD_URL, HOLDFAST_GUARD_TOKEN and HOLDFAST_GUARD_TRAINING have to be in the environment of Ray's workers. The
validation set is that of the audits' prompts, with trainer.test_freq = every and trainer.val_before_train=True:
`supervise.py` begins the training with them, and carries out what the guard advises.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from verl import DataProto
from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager

from holdfast.interop.guard_client import AnswerPoster, GuardClient

# Threads only wait: for the batch that their answer goes with.
_pool = ThreadPoolExecutor(256, thread_name_prefix="holdfast-guard")


class GuardedRewardManager(NaiveRewardManager):
    """verl's own manager; what it comes to is posted before it is returned."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        training = GuardClient.of().training(os.environ["HOLDFAST_GUARD_TRAINING"])
        self._audited = {key_of(prompt): prompt for prompt in training.settings()["prompts"]}
        self._poster = AnswerPoster(training)

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        result = await super().run_single(data)
        item = data[-1:][0]
        prompt = [{"role": turn["role"], "content": turn["content"]} for turn in item.non_tensor_batch["raw_prompt"]]
        ids = item.batch["responses"]
        length = int(item.batch["attention_mask"][-ids.shape[-1] :].sum())
        answer = await self.loop.run_in_executor(
            None, lambda: self.tokenizer.decode(ids[:length], skip_special_tokens=True)
        )
        extra = result["reward_extra_info"]
        # Components are the numbers that the reward function has returned beside its score.
        parts = {k: v for k, v in extra.items() if k not in ("score", "acc") and isinstance(v, int | float)}
        reward = {"score": result["reward_score"], **parts}
        own = self._audited.get(key_of(prompt))
        about = {"of": "policy" if own is None else "evaluation"}
        finished = length > 0 and int(ids[length - 1]) == self.tokenizer.eos_token_id
        asked = self._poster.add, own or prompt, answer, reward, about
        state = await asyncio.wrap_future(_pool.submit(*asked, finished=finished, tokens=length))
        # A component that the guard has had down-weighted counts for less from the next answer on.
        less = sum(parts.get(name, 0.0) * (1.0 - factor) for name, factor in state.get("discounts", {}).items())
        return {"reward_score": result["reward_score"] - less, "reward_extra_info": extra}


def key_of(prompt: Any) -> str:
    """What a prompt is known by: its text, or the last turn's."""
    return prompt if isinstance(prompt, str) else str(prompt[-1]["content"])
