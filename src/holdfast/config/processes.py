"""Settings for several processes on one run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.config.setting import setting


@dataclass(frozen=True)
class ProcessesConfig:
    """Several processes on one run, started by torchrun or accelerate launch; with one, nothing of this matters."""

    strategy: Literal["data", "fsdp2"] = setting(
        "data", "each process has whole models and its share of a batch, or its share of the weights as well"
    )
    timeout_minutes: float = setting(30.0, "how long one process may keep the others waiting", above=0)
