"""A member of the reward ensemble, and a critic of its own: a transformers trunk with a scalar read-out.

Shapes: B rows, T tokens, D hidden, N response tokens laid end to end.
"""

from __future__ import annotations

import copy
from typing import Any, Literal

import torch
from torch import Tensor, nn

from holdfast.models.batches import MicroBatch
from holdfast.models.fast.trunk import FastTrunk
from holdfast.models.policy import ValueHead, allow_checkpointing, checkpointed, turn_off_dropout

Pooling = Literal["last", "mean"]


# How loud a quiet head is.
QUIET = 0.02


class TrunkModel(nn.Module):
    """A model that reads the hidden states of a trunk, by the packed path where it may."""

    def __init__(self, trunk: Any, fast: bool, checkpointing: bool) -> None:
        super().__init__()
        self.trunk = trunk
        turn_off_dropout(trunk)
        self.fast = FastTrunk.of(trunk, checkpointing) if fast else None
        self.checkpointing = checkpointing and self.fast is None
        if self.checkpointing:
            allow_checkpointing(trunk)
        width = int(trunk.get_input_embeddings().weight.shape[1])
        self.width = int(getattr(trunk.config, "hidden_size", width))

    def plain_hidden(self, batch: MicroBatch) -> Tensor:
        """hidden_BTD by transformers' own path."""
        with checkpointed(self.trunk, self.checkpointing):
            return self.trunk(input_ids=batch.input_ids_BT, use_cache=False).last_hidden_state  # type: ignore[no-any-return]


class RewardModel(TrunkModel):
    """score(prompt, response) = w . h + b, with w ~ N(0, 1/(D+1)) and b = 0 at the start.

    h is the state of the response's last token, or the mean over its tokens. A `quiet` head starts at a fiftieth of
    that: where little of the trunk moves, a few hundred labels do not drown out what a loud random head says.
    """

    def __init__(
        self,
        trunk: Any,
        head_seed: int,
        fast: bool = True,
        pooling: Pooling = "last",
        checkpointing: bool = False,
        quiet: bool = False,
    ) -> None:
        super().__init__(trunk, fast, checkpointing)
        self.pooling = pooling
        self.head = nn.Linear(self.width, 1)
        rng = torch.Generator().manual_seed(head_seed)
        with torch.no_grad():
            self.head.weight.copy_(torch.randn(1, self.width, generator=rng) / (self.width + 1) ** 0.5)
            self.head.weight.mul_(QUIET if quiet else 1.0)
            self.head.bias.zero_()

    def forward(self, batch: MicroBatch) -> Tensor:
        return self.read(self.hidden(batch))

    def hidden(self, batch: MicroBatch) -> Tensor:
        """hidden_BD: what the head reads of each row."""
        mean = self.pooling == "mean"
        if self.fast is not None:
            return batch.mean_of(self.fast.hidden(batch.to_pool)) if mean else self.fast.hidden(batch.to_score)
        hidden_BTD = self.plain_hidden(batch)
        if mean:
            return batch.mean_of(hidden_BTD[batch.pooled_M].float())
        rows_B = torch.arange(len(batch.rows), device=hidden_BTD.device)
        return hidden_BTD[rows_B, batch.last_B].float()

    def read(self, hidden_BD: Tensor) -> Tensor:
        """The score of each row from its hidden state."""
        return self.head(hidden_BD).squeeze(-1)  # type: ignore[no-any-return]


class CriticModel(TrunkModel):
    """A value function with a trunk of its own; it predicts at every position that precedes a response token."""

    def __init__(self, trunk: Any, fast: bool = True, checkpointing: bool = False) -> None:
        super().__init__(trunk, fast, checkpointing)
        self.head = ValueHead(self.width)

    def forward(self, batch: MicroBatch) -> Tensor:
        if self.fast is not None:
            return self.head(self.fast.hidden(batch.to_predict))  # type: ignore[no-any-return]
        return self.head(self.plain_hidden(batch)[batch.row_N, batch.column_N])  # type: ignore[no-any-return]


def trunk_of(lm: Any) -> Any:
    """A copy of a causal LM's trunk, without its head."""
    return copy.deepcopy(lm.base_model)
