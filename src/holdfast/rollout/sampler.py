"""The sampler: prompts in, responses with their log-probs (and values) out.

Prompts are padded on the left, decoded with a KV cache, and rows that have ended leave the batch, so no token is
computed for a finished answer. Every draw uses a uniform number fixed per row and position beforehand, so which rows
leave, and when, changes nothing in the others.

Shapes: B rows, A rows still active, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from holdfast.models.policy import Policy


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. top_p 1 and top_k 0 leave the distribution whole."""

    max_new_tokens: int = 64
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_batch: int = 256


@dataclass(frozen=True)
class Rollout:
    """Prompts and sampled responses, ragged as lists, with per-token values padded on the right.

    Log-probs are of the full distribution at the sampling temperature (before top-p and top-k), as the update and
    the reference compute them.
    """

    prompts: list[list[int]]
    responses: list[list[int]]
    logprobs_BT: Tensor
    values_BT: Tensor | None
    mask_BT: Tensor
    finished: list[bool]

    @property
    def lengths(self) -> list[int]:
        return [len(r) for r in self.responses]


def truncate_distribution(logits_AV: Tensor, top_p: float, top_k: int) -> Tensor:
    """Keep the k likeliest tokens, then the smallest set with at least top_p of the mass; the rest become -inf."""
    if top_k > 0 and top_k < logits_AV.shape[-1]:
        kth_A1 = logits_AV.topk(top_k, dim=-1).values[:, -1:]
        logits_AV = logits_AV.masked_fill(logits_AV < kth_A1, float("-inf"))
    if top_p < 1.0:
        sorted_AV, order_AV = logits_AV.sort(dim=-1, descending=True)
        probs_AV = sorted_AV.softmax(-1)
        # A token goes when the mass before it already reaches top_p, so the likeliest always stays.
        gone_AV = probs_AV.cumsum(-1) - probs_AV >= top_p
        logits_AV = logits_AV.masked_fill(gone_AV.scatter(-1, order_AV, gone_AV), float("-inf"))
    return logits_AV


def draw(logits_AV: Tensor, uniform_A: Tensor) -> Tensor:
    """Inverse-CDF sampling: the first token whose cumulative probability exceeds the uniform number."""
    cdf_AV = logits_AV.double().softmax(-1).cumsum(-1)
    # Scaled by the total so that rounding can never leave the last token unreachable or step past the end.
    picked_A = (cdf_AV <= uniform_A[:, None] * cdf_AV[:, -1:]).sum(-1)
    return picked_A.clamp_max(logits_AV.shape[-1] - 1)


@torch.no_grad()
def sample(
    policy: Policy,
    prompts: Sequence[list[int]],
    sampling: Sampling,
    eos_id: int,
    pad_id: int,
    rng: torch.Generator,
) -> Rollout:
    """One response to each prompt. At temperature 0 the likeliest token is taken."""
    uniform_BT = torch.rand(len(prompts), sampling.max_new_tokens, generator=rng, dtype=torch.float64)
    responses: list[list[int]] = [[] for _ in prompts]
    logprobs_BT = torch.zeros(len(prompts), sampling.max_new_tokens)
    values_BT = torch.zeros_like(logprobs_BT)
    # Prompts of similar length go together: less padding on the left.
    by_length = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    for start in range(0, len(by_length), sampling.max_batch):
        rows = by_length[start : start + sampling.max_batch]
        chunk = _Decoding(policy, [prompts[i] for i in rows], eos_id, pad_id)
        for t in range(sampling.max_new_tokens):
            active, tokens, logprobs, values = chunk.step(uniform_BT[rows, t], sampling)
            at = [rows[a] for a in active]
            for row, token in zip(at, tokens, strict=True):
                responses[row].append(token)
            logprobs_BT[at, t] = logprobs
            values_BT[at, t] = values
            if not chunk.advance():
                break
    longest = max(len(r) for r in responses)
    lengths_B = torch.tensor([len(r) for r in responses])
    return Rollout(
        prompts=[list(p) for p in prompts],
        responses=responses,
        logprobs_BT=logprobs_BT[:, :longest].contiguous(),
        values_BT=None if policy.value_head is None else values_BT[:, :longest].contiguous(),
        mask_BT=torch.arange(longest)[None] < lengths_B[:, None],
        finished=[r[-1] == eos_id for r in responses],
    )


class _Decoding:
    """A chunk of rows being decoded; `active` maps the rows still in the batch to rows of the chunk."""

    def __init__(self, policy: Policy, prompts: list[list[int]], eos_id: int, pad_id: int) -> None:
        self.policy, self.eos_id = policy, eos_id
        width = max(len(p) for p in prompts)
        device = policy.device
        self.ids = torch.tensor([[pad_id] * (width - len(p)) + p for p in prompts], device=device)
        self.mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)
        self.positions = (self.mask.cumsum(-1) - 1).clamp_min(0)
        self.cache: Any = DynamicCache(config=policy.lm.config)
        self.active = list(range(len(prompts)))
        self.picked_A = torch.empty(0)

    def step(self, uniform_B: Tensor, sampling: Sampling) -> tuple[list[int], list[int], Tensor, Tensor]:
        """Choose the next token of every active row."""
        logits_AV, values_A = self._forward()
        temperature = sampling.temperature or 1.0
        logits_AV = logits_AV.float() / temperature
        if sampling.temperature == 0.0:
            self.picked_A = logits_AV.argmax(-1)
        else:
            kept_AV = truncate_distribution(logits_AV, sampling.top_p, sampling.top_k)
            self.picked_A = draw(kept_AV, uniform_B[self.active].to(logits_AV.device))
        logprobs_A = torch.log_softmax(logits_AV, -1).gather(-1, self.picked_A[:, None]).squeeze(-1)
        return list(self.active), self.picked_A.tolist(), logprobs_A.cpu(), values_A.cpu()

    def advance(self) -> bool:
        """Feed the chosen tokens on, dropping the rows that ended; False when none is left."""
        going_A = self.picked_A != self.eos_id
        if not bool(going_A.all()):
            keep = going_A.nonzero().squeeze(-1)
            if keep.numel() == 0:
                return False
            self.active = [self.active[i] for i in keep.tolist()]
            self.cache.batch_select_indices(keep)
            self.mask, self.positions = self.mask[keep], self.positions[keep]
            self.picked_A = self.picked_A[keep]
        self.ids = self.picked_A[:, None]
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(self.active), 1)], dim=1)
        self.positions = self.positions[:, -1:] + 1
        return True

    def _forward(self) -> tuple[Tensor, Tensor]:
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
        if policy.value_head is None:
            return logits_AV, logits_AV.new_zeros(len(self.active))
        return logits_AV, policy.value_head(hidden_AD)
