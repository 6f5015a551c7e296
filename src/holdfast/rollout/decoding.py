"""Rows being decoded: what comes next of each, and the tokens that it goes on by.

Shapes: A rows still going, T tokens, V vocabulary, D hidden, I hidden of the fast path.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import DynamicCache

from holdfast.models.fast.decoding import Decoder
from holdfast.models.policy import Policy


class Decoding(Protocol):
    """`forward` looks ahead, `keep` drops rows, `feed` adds one chosen token to each row, `feed_several` some.

    `several` says whether rows can go on by different numbers of tokens at once.
    """

    several: bool

    def forward(self) -> tuple[Tensor, Tensor | None]: ...

    def keep(self, going: list[int]) -> list[int]: ...

    def feed(self, tokens_A: Tensor) -> None: ...

    def feed_several(self, tokens: list[list[int]]) -> None: ...


def decoding_of(policy: Policy, prompts: list[list[int]], pad_id: int, longest: int) -> Decoding:
    if policy.fast is not None:
        return _FastDecoding(policy, Decoder(policy.fast, prompts, longest))
    return _PlainDecoding(policy, prompts, pad_id)


class _FastDecoding:
    """By the fast path's decoder."""

    several = True

    def __init__(self, policy: Policy, decoder: Decoder) -> None:
        self.policy, self.decoder = policy, decoder
        self.head = policy.head
        self.tokens_A: Tensor | None = None
        self.tokens: list[list[int]] | None = None

    def forward(self) -> tuple[Tensor, Tensor | None]:
        if self.tokens is not None:
            hidden_AI = self.decoder.extend(self.tokens)
        else:
            hidden_AI = self.decoder.prefill() if self.tokens_A is None else self.decoder.step(self.tokens_A)
        value_head = self.policy.value_head
        return self.head.times(hidden_AI), None if value_head is None else value_head(hidden_AI)

    def keep(self, going: list[int]) -> list[int]:
        return self.decoder.keep(going)

    def feed(self, tokens_A: Tensor) -> None:
        self.tokens_A = tokens_A

    def feed_several(self, tokens: list[list[int]]) -> None:
        self.tokens = None
        if self.decoder.ends_B is None and all(len(own) == 1 for own in tokens):
            self.feed(torch.tensor([own[0] for own in tokens], device=self.policy.device))
        else:
            self.tokens = tokens


class _PlainDecoding:
    """By the model's own forward and cache, prompts padded on the left."""

    def __init__(self, policy: Policy, prompts: list[list[int]], pad_id: int) -> None:
        self.policy, self.pad_id = policy, pad_id
        self.several = policy.takes_positions and looks_back_whole(policy.lm.config)
        self.ids, self.mask = self._padded(prompts)
        self.positions = (self.mask.cumsum(-1) - 1).clamp_min(0)
        self.cache: Any = DynamicCache(config=policy.lm.config)

    def _padded(self, rows: list[list[int]]) -> tuple[Tensor, Tensor]:
        """Rows padded on the left, and 1 where a row's own tokens stand."""
        width, device = max(len(row) for row in rows), self.policy.device
        ids = torch.tensor([[self.pad_id] * (width - len(row)) + row for row in rows], device=device)
        return ids, torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=device)

    def forward(self) -> tuple[Tensor, Tensor | None]:
        policy = self.policy
        kwargs: dict[str, Any] = {"attention_mask": self.mask, "past_key_values": self.cache}
        if policy.takes_positions:
            kwargs["position_ids"] = self.positions
        if policy.plain_head:
            hidden_BTD, self.cache = policy.hidden(self.ids, **kwargs)
            hidden_AD = hidden_BTD[:, -1]
            logits_AV = policy.lm.get_output_embeddings()(hidden_AD)
        else:
            out = policy.lm(input_ids=self.ids, use_cache=True, output_hidden_states=True, **kwargs)
            self.cache, hidden_AD, logits_AV = (
                out.past_key_values,
                out.hidden_states[-1][:, -1],
                out.logits[:, -1],
            )
        return logits_AV, None if policy.value_head is None else policy.value_head(hidden_AD)

    def keep(self, going: list[int]) -> list[int]:
        keep = torch.tensor(going, device=self.ids.device)
        self.cache.batch_select_indices(keep)
        self.mask, self.positions = self.mask[keep], self.positions[keep]
        return going

    def feed(self, tokens_A: Tensor) -> None:
        self.ids = tokens_A[:, None]
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(tokens_A), 1)], dim=1)
        self.positions = self.positions[:, -1:] + 1

    def feed_several(self, tokens: list[list[int]]) -> None:
        self.ids, own = self._padded(tokens)
        self.mask = torch.cat([self.mask, own], dim=1)
        self.positions = self.positions[:, -1:] + own.cumsum(-1)


def looks_back_whole(config: Any) -> bool:
    """Whether every layer attends to all that came before, so that columns between a row's tokens do no harm."""
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        return all(kind == "full_attention" for kind in kinds)
    return not getattr(config, "sliding_window", None) and not getattr(config, "alibi", False)
