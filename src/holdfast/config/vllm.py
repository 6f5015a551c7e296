"""The settings of rollouts by a vLLM server."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.config.setting import setting


@dataclass(frozen=True)
class VLLMConfig:
    """Rollouts by a vLLM server, which is given the policy's weights after every step."""

    url: str = setting("", "address of the server, such as http://127.0.0.1:8000; empty samples in the run's process")
    model: str = setting("", "name of the model there; empty takes the only one")
    key_variable: str = setting("", "environment variable that holds the server's key, where it wants one")
    weights: str = setting(
        "", "directory for weights on their way, which the server has to see; empty takes one in the run directory"
    )
    weights_there: str = setting("", "that directory as the server sees it; empty where it has the same path there")
    tolerance: float = setting(
        0.1, "the server's log-probs may differ from ours by this much, mean over tokens; more is refused", above=0.0
    )
    parallel: int = setting(32, "answers asked for at once", low=1)
    timeout_seconds: float = setting(120.0, "longest wait for one answer", above=0.0)
    retries: int = setting(3, "further tries of a question that failed", low=0)
