"""verl's custom reward function, answered by `holdfast serve-reward`.

    custom_reward_function.path=pkg://holdfast.interop.verl      (or the path of this file)
    custom_reward_function.name=compute_score                    (or compute_score_async)

verl calls it once for each sample in several workers and does not pass the prompt: put it into the dataset's
`extra_info` under "prompt", as a text or a list of messages. Address and token come from the environment
(HOLDFAST_REWARD_URL, HOLDFAST_REWARD_TOKEN) or from `custom_reward_function.reward_kwargs`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.interop.reward_client import RewardClient

# Requests of one worker at the same time; threads, since they only wait.
AT_ONCE = 64
_pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="holdfast-reward")


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    url: str | None = None,
    token: str | None = None,
    prompt_key: str = "prompt",
    timeout: float = 300.0,
    retries: int = 5,
    **other: Any,
) -> dict[str, float]:
    """The ensemble's score of an answer, its members' spread, and the version that gave them.

    `data_source` and `ground_truth` are for rules, and `other` is what verl passes to reward models of its own.
    """
    prompt = prompt_in(extra_info, prompt_key)
    reply = RewardClient.of(url, token, timeout=timeout, retries=retries).score([prompt], [solution_str])
    answer = reply["answers"][0]
    return {"score": answer["score"], "spread": answer["spread"], "version": float(reply["version"])}


async def compute_score_async(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    **settings: Any,
) -> dict[str, float]:
    """The same for verl's asynchronous reward loop."""
    ask = partial(compute_score, data_source, solution_str, ground_truth, extra_info, **settings)
    return await asyncio.get_running_loop().run_in_executor(_pool, ask)


def prompt_in(extra_info: Mapping[str, Any] | None, key: str) -> Any:
    """The prompt that the dataset carries along: a text, or messages as a list of plain objects."""
    prompt: Any = (extra_info or {}).get(key)
    # Parquet gives arrays where the dataset had lists.
    prompt = prompt.tolist() if hasattr(prompt, "tolist") else prompt
    if isinstance(prompt, list | tuple):
        return [{"role": str(turn["role"]), "content": turn["content"]} for turn in prompt]
    if not isinstance(prompt, str) or not prompt:
        raise HoldfastError(
            f"extra_info holds no {key!r}, and an answer cannot be scored without its prompt; "
            "add it to the dataset's extra_info, or name its key by reward_kwargs.prompt_key."
        )
    return prompt
