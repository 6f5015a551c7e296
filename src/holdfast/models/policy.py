"""The policy: any transformers causal LM, with logits for the positions that are asked for and an optional value head.

Shapes: B rows, T tokens, D hidden, V vocabulary, N chosen positions laid end to end.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.algorithms.logprobs import token_logprobs
from holdfast.errors import HoldfastError
from holdfast.models.batches import MicroBatch
from holdfast.models.fast.blocks import TokenLogProbs
from holdfast.models.fast.products import MOST_WEIGHTS, Products, ProductsOf
from holdfast.models.fast.trunk import FastTrunk

# Positions whose distributions are held at once: a large vocabulary needs much room.
POSITIONS = 256


class ValueHead(nn.Module):
    """A linear read-out of the hidden state, zero at the start: a fresh critic expects nothing."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 1)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.linear(hidden.float()).squeeze(-1)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Outputs:
    """Log-probs and, where the policy carries a value head, values at the chosen positions."""

    logprobs_N: Tensor
    values_N: Tensor | None


def turn_off_dropout(model: nn.Module) -> None:
    """Make dropout do nothing in training mode too: PPO's ratio compares two passes of the same network."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        # Attention layers keep a rate of their own, read from the config when they were made.
        for name, value in list(vars(module).items()):
            if "drop" in name and isinstance(value, float):
                setattr(module, name, 0.0)
    # The config is left alone: it is written out again when the model is saved.
    model.eval()


def allow_checkpointing(model: Any) -> None:
    """Have transformers compute layers again in a backward pass, where `checkpointed` asks for it."""
    if not getattr(model, "supports_gradient_checkpointing", False):
        raise HoldfastError(
            f"{type(model).__name__} cannot compute its layers again; set policy.gradient_checkpointing to false."
        )
    # The older, re-entrant way gives no gradients to adapters on a frozen embedding.
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


@contextmanager
def checkpointed(model: nn.Module, wanted: bool) -> Iterator[None]:
    """A forward pass whose layers keep nothing, if wanted and there will be a backward pass.

    transformers does that in training mode only, in which it does not decode with a cache, so the mode is left at once.
    """
    if not (wanted and torch.is_grad_enabled()):
        yield
        return
    model.train()
    try:
        yield
    finally:
        model.eval()


def context_of(config: Any) -> int | None:
    """The longest sequence that a model with this config can take, where it says so."""
    for name in ("max_position_embeddings", "n_positions", "n_ctx"):
        if isinstance(getattr(config, name, None), int):
            return int(getattr(config, name))
    return None


class Policy(nn.Module):
    """A causal LM seen as trunk and head, so that only response tokens pay for logits.

    Some architectures do more than a linear head (soft caps, scales). `plain_head` is found at construction by
    comparing both routes on a probe; where they differ, the model's own forward is used in full. `fast` is the packed
    path of a Llama-like model, None for others and where it is not wanted.
    """

    def __init__(self, lm: Any, value_head: bool = False, fast: bool = True, checkpointing: bool = False) -> None:
        super().__init__()
        turn_off_dropout(lm)
        self.lm = lm
        width = int(lm.get_output_embeddings().weight.shape[1])
        self.value_head = ValueHead(width) if value_head else None
        self.takes_positions = "position_ids" in inspect.signature(lm.forward).parameters
        self.plain_head = self._head_is_plain()
        bare_head = self.plain_head and getattr(lm.get_output_embeddings(), "bias", None) is None
        self.fast = FastTrunk.of(lm.base_model, checkpointing) if fast and bare_head else None
        self._products = ProductsOf(self.weights < MOST_WEIGHTS)
        self.checkpointing = checkpointing and self.fast is None
        if self.checkpointing:
            allow_checkpointing(lm)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def context(self) -> int | None:
        """The longest sequence the model can take, where its config says so."""
        return context_of(self.lm.config)

    @property
    def vocabulary(self) -> int:
        """The tokens that the model can say, which may be more than its tokenizer knows."""
        return int(self.lm.get_output_embeddings().weight.shape[0])

    @property
    def head(self) -> Products:
        """What hidden states are multiplied with to become logits, on the fast path."""
        return self._products(self.lm.get_output_embeddings().weight)

    @property
    def weights(self) -> int:
        """How many there are."""
        return sum(parameter.numel() for parameter in self.lm.parameters())

    def hidden(self, input_ids_BT: Tensor, **kwargs: Any) -> tuple[Tensor, Any]:
        """The trunk's last hidden states and, when a cache was asked for, the cache."""
        out = self.lm.base_model(input_ids=input_ids_BT, use_cache="past_key_values" in kwargs, **kwargs)
        return out.last_hidden_state, getattr(out, "past_key_values", None)

    def logits_and_hidden(self, input_ids_BT: Tensor, row_N: Tensor, column_N: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and hidden states at the chosen positions."""
        if self.plain_head:
            hidden_ND = self.hidden(input_ids_BT)[0][row_N, column_N]
            return self.lm.get_output_embeddings()(hidden_ND), hidden_ND
        out = self.lm(input_ids=input_ids_BT, use_cache=False, output_hidden_states=True)
        return out.logits[row_N, column_N], out.hidden_states[-1][row_N, column_N]

    def scores(self, batch: MicroBatch) -> Iterator[tuple[int, Tensor]]:
        """Logits of the batch's response tokens, some positions at a time, each lot with the place of its first."""
        if self.fast is None:
            pieces = torch.split(self.logits_and_hidden(batch.input_ids_BT, batch.row_N, batch.column_N)[0], POSITIONS)
        else:
            pieces = torch.split(self.fast.hidden(batch.to_predict), POSITIONS)
        head = self.lm.get_output_embeddings()
        for number, piece in enumerate(pieces):
            yield number * POSITIONS, piece if self.fast is None else head(piece)

    def forward(self, batch: MicroBatch, temperature: float = 1.0, truncated: bool = True) -> Outputs:
        """Log-probs of the batch's response tokens at the sampling temperature, over the sets that they are from.

        A reference is not `truncated`: what top-k and top-p kept of the policy is not all that it may say.
        """
        if self.fast is not None:
            hidden_ND = self.fast.hidden(batch.to_predict)
            weight_VD = self.lm.get_output_embeddings().weight
            learns = torch.is_grad_enabled()
            logprobs_N = TokenLogProbs.apply(  # type: ignore[no-untyped-call]
                hidden_ND, weight_VD, self.head, batch.target_N, temperature, learns, batch.sets, truncated
            )
            return Outputs(logprobs_N, None if self.value_head is None else self.value_head(hidden_ND))
        with checkpointed(self.lm, self.checkpointing):
            logits_NV, hidden_ND = self.logits_and_hidden(batch.input_ids_BT, batch.row_N, batch.column_N)
        if batch.sets is not None:
            logits_NV = batch.sets.restrict(logits_NV.clone(), truncated)
        return Outputs(
            logprobs_N=token_logprobs(logits_NV, batch.target_N, temperature),
            values_N=None if self.value_head is None else self.value_head(hidden_ND),
        )

    @torch.no_grad()
    def _head_is_plain(self) -> bool:
        base = getattr(self.lm, "base_model", None)
        if base is None or base is self.lm:
            return False
        probe_BT = torch.arange(1, 5, device=self.device)[None] % self.lm.get_input_embeddings().weight.shape[0]
        head = self.lm.get_output_embeddings()
        # Amplified on both routes: the logits of a fresh model are too small for a soft cap to show.
        amplifier = head.register_forward_hook(lambda _module, _inputs, logits: 1000.0 * logits)
        try:
            ours = head(base(input_ids=probe_BT, use_cache=False).last_hidden_state)
            theirs = self.lm(input_ids=probe_BT, use_cache=False).logits
        finally:
            amplifier.remove()
        return ours.shape == theirs.shape and bool(torch.allclose(ours, theirs, atol=1e-5, rtol=1e-5))
