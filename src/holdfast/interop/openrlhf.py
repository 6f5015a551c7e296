"""OpenRLHF's reward function in a file, answered by `holdfast serve-reward`.

`--reward.remote_url` takes the service's own address as well. This file is for who wants the token in a header and not
in a URL, or longer and more patient tries: give its path to `--reward.remote_url`, and HOLDFAST_REWARD_URL and
HOLDFAST_REWARD_TOKEN in the environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.interop.reward_client import RewardClient


def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any], **other: Any) -> dict[str, Any]:
    """Rewards, scores between 0 and 1, and figures to log, each a tensor of one number for each query."""
    import torch

    asked = {"query": list(queries), "prompts": list(prompts), "labels": list(labels)}
    reply = RewardClient.of().post("/get_reward", asked, "rewards", "scores", "extra_logs")
    logs = {name: torch.tensor(values) for name, values in reply["extra_logs"].items()}
    return {"rewards": torch.tensor(reply["rewards"]), "scores": torch.tensor(reply["scores"]), "extra_logs": logs}
