"""What is compared with TRL: the cases of `python -m benchmarks peers`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Algorithm = Literal["ppo", "grpo", "rloo"]
Critic = Literal["head", "model"]

PEER = "TRL"
# Answers in an iteration, and answers to each prompt where credit is assigned within a group.
SAMPLES, GROUP = 64, 4
# The last release with this PPO trainer, and the newest one.
PPO_PEER, GROUP_PEER = "trl==1.12.0", "trl==1.16.0"


@dataclass(frozen=True)
class Case:
    """One comparison: the same work for TRL and for one or two of our ways to do it."""

    algorithm: Algorithm
    kind: str
    size: str

    @property
    def name(self) -> str:
        return f"{self.algorithm}-{self.kind}-{self.size}"

    @property
    def peer(self) -> str:
        return PPO_PEER if self.algorithm == "ppo" else GROUP_PEER

    @property
    def ours(self) -> dict[str, Critic]:
        """Our sides, with the critic of each."""
        return {"ours": "head", "ours+critic": "model"} if self.algorithm == "ppo" else {"ours": "head"}


CASES = tuple(
    [Case("ppo", kind, size) for kind in ("natural", "fixed") for size in ("1m", "15m", "deep")]
    + [Case(algorithm, "natural", size) for algorithm in ("grpo", "rloo") for size in ("1m", "15m")]
)
