"""The mean of the policies that the last rounds ended with.

Reward and policy push each other about from refresh to refresh, and the policy of one round is better or worse than its
neighbours' by chance. The mean of their weights is as good as the best of them, or better (Izmailov et al. 2018,
arXiv:1803.05407; for RLHF Rame et al. 2024, arXiv:2406.16768), and a run ends with that. A policy that the
guard has something against (`Outcome.stands`) is no such neighbour, and is left out.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from holdfast.algorithms.weight_mean import mean_with_one_more

# Of all rounds at most one in so many: early policies are not neighbours of the last one.
SHARE = 2
# Beside the weights, in the state of the mean.
COUNT = "averaged policies"


class PolicyMean:
    """A running mean of weights over the last rounds of a run; one copy of them, and none before these rounds."""

    def __init__(self, rounds: int, last: int) -> None:
        self._last_round = rounds
        self._first_round = rounds - min(last, max(1, rounds // SHARE)) + 1
        self._count = 0
        self._mean: dict[str, Tensor] = {}

    def ends_in_mean(self, round: int) -> bool:
        """Whether the policy that a round has come to is to be put together with those of the rounds before."""
        return round == self._last_round and self._count > 0

    def wants(self, round: int) -> bool:
        """Whether the policy that a round ended with is to be added; those of early rounds do not count."""
        return self._first_round <= round < self._last_round

    def add(self, weights: Mapping[str, Tensor]) -> None:
        """One more policy."""
        self._mean, self._count = self.mean_with(weights), self._count + 1

    def mean_with(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The mean of all so far and these."""
        newest = {name: tensor.detach().to("cpu", copy=True) for name, tensor in weights.items()}
        return mean_with_one_more(self._mean, self._count, newest)

    @property
    def policies(self) -> int:
        """How many policies have been added."""
        return self._count

    def state(self) -> dict[str, Tensor]:
        return {**self._mean, COUNT: torch.tensor(self._count)} if self._count else {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self._count = int(state[COUNT]) if state else 0
        self._mean = {name: tensor.clone() for name, tensor in state.items() if name != COUNT}
