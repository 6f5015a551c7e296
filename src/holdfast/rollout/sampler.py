"""The sampler: prompts in, responses with their log-probs (and values) out.

Rows are decoded with a KV cache, and rows that have ended leave the batch, so no token is computed for a finished
answer. Every draw uses a uniform number fixed per row and position beforehand, so which rows leave, and when, decides
nothing about the others.

Shapes: B rows, A rows still active, T tokens, V vocabulary, W tokens of a block of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import DynamicCache

from holdfast.models.fast.decoding import Decoder
from holdfast.models.policy import Policy
from holdfast.models.sharding import whole
from holdfast.parallel.cores import CORES
from holdfast.parallel.processes import PROCESSES

# Tokens of the vocabulary that are first drawn together.
BLOCK = 64
JUST_BELOW_ONE = 1 - 2**-52
# Weights from which on a token's work outweighs Python's, of which only one core does any at a time.
WORTH_CUTTING = 1_000_000
# Rows that a core has to have of its own for the same reason.
LEAST_ROWS = 16


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
    the reference compute them. `server_gap` is how far a server's own were from them, where one did the sampling.
    `texts` are the answers as they were given, where another tokenizer made them and `responses` are in other tokens.
    """

    prompts: list[list[int]]
    responses: list[list[int]]
    logprobs_BT: Tensor
    values_BT: Tensor | None
    mask_BT: Tensor
    finished: list[bool]
    server_gap: float | None = None
    texts: list[str] | None = None

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


def draw(powers_AV: Tensor, uniform_A: Tensor) -> Tensor:
    """Inverse-CDF sampling from weights that need not add up to 1: first a block of the vocabulary, then a token of it.

    Sums of blocks are much cheaper than a running sum over the vocabulary, and give the same token. The first place
    whose running sum exceeds the wanted number is never one that adds nothing; the number is held just below the
    total, so that rounding cannot step past the end.
    """
    vocabulary = powers_AV.shape[-1]
    blocks = -(-vocabulary // BLOCK)
    if blocks * BLOCK != vocabulary:
        powers_AV = torch.nn.functional.pad(powers_AV, (0, blocks * BLOCK - vocabulary))
    powers_AXW = powers_AV.view(-1, blocks, BLOCK)
    edges_AX = torch.zeros(len(powers_AXW), blocks + 1, dtype=torch.float64, device=powers_AV.device)
    torch.cumsum(powers_AXW.sum(-1, dtype=torch.float64), -1, out=edges_AX[:, 1:])
    total_A1 = edges_AX[:, -1:]
    wanted_A1 = torch.minimum(uniform_A[:, None] * total_A1, total_A1 * JUST_BELOW_ONE)
    block_A1 = torch.searchsorted(edges_AX, wanted_A1, right=True).sub_(1)
    inside_A1 = wanted_A1.sub_(edges_AX.gather(-1, block_A1))
    powers_AW = powers_AXW.gather(1, block_A1[..., None].expand(-1, -1, BLOCK)).squeeze(1)
    cdf_AW = powers_AW.cumsum(-1, dtype=torch.float64)
    inside_A1 = torch.minimum(inside_A1, cdf_AW[:, -1:] * JUST_BELOW_ONE)
    return torch.searchsorted(cdf_AW, inside_A1, right=True).add_(block_A1, alpha=BLOCK).squeeze(1)


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
    needed: dict[str, Any] = {
        "prompts": list(prompts), "sampling": sampling, "eos_id": eos_id, "pad_id": pad_id, "uniform_BT": uniform_BT,
    }  # fmt: skip
    with PROCESSES.joint("sample", [policy], **needed), whole(policy):
        return sample_with(policy, **needed)


@torch.no_grad()
def sample_with(
    policy: Policy,
    prompts: Sequence[list[int]],
    sampling: Sampling,
    eos_id: int,
    pad_id: int,
    uniform_BT: Tensor,
) -> Rollout:
    """The same with uniform numbers that have been drawn; in joint work each process decodes some of the rows."""
    count, longest = len(prompts), sampling.max_new_tokens
    drawn = _Drawn(
        uniform_BT=uniform_BT.to(policy.device),
        tokens_BT=torch.full((count, longest), pad_id, device=policy.device),
        logprobs_BT=torch.zeros(count, longest, device=policy.device),
        values_BT=torch.zeros(count, longest, device=policy.device),
        lengths=[longest] * count,
        finished=[False] * count,
    )
    # Prompts of similar length go together: less padding on the left.
    mine = PROCESSES.part(sorted(range(count), key=lambda i: len(prompts[i])))
    chunks = _chunks(mine, sampling.max_batch, CORES.free if policy.weights >= WORTH_CUTTING else 1)

    def decode(rows: list[int]) -> None:
        _decode(_decoding(policy, [prompts[i] for i in rows], pad_id, longest), rows, drawn, sampling, eos_id)

    CORES.share([partial(decode, rows) for rows in chunks])
    if PROCESSES.together:
        drawn = _gathered(drawn, mine)
    lengths = drawn.lengths
    width = max(lengths)
    return Rollout(
        prompts=[list(p) for p in prompts],
        responses=[row[:length] for row, length in zip(drawn.tokens_BT.tolist(), lengths, strict=True)],
        logprobs_BT=drawn.logprobs_BT[:, :width].cpu().contiguous(),
        values_BT=None if policy.value_head is None else drawn.values_BT[:, :width].cpu().contiguous(),
        mask_BT=torch.arange(width)[None] < torch.tensor(lengths)[:, None],
        finished=drawn.finished,
    )


def _chunks(rows: list[int], most: int, cores: int) -> list[list[int]]:
    """Rows that are decoded together, at most so many; where there is only one such lot, each core takes some of it."""
    lots = [rows[start : start + most] for start in range(0, len(rows), most)]
    if len(lots) > 1:
        return lots
    parts = max(1, min(cores, len(rows) // LEAST_ROWS))
    return [rows[first::parts] for first in range(parts)] if rows else []


@dataclass(frozen=True)
class _Drawn:
    """Where the tokens of all rows go, and the uniform numbers they are drawn with."""

    uniform_BT: Tensor
    tokens_BT: Tensor
    logprobs_BT: Tensor
    values_BT: Tensor
    lengths: list[int]
    finished: list[bool]


def _gathered(drawn: _Drawn, mine: Sequence[int]) -> _Drawn:
    """The rows of all processes: each adds its own to nothing of the others'."""
    own_B = torch.zeros(len(drawn.lengths), dtype=torch.bool)
    own_B[list(mine)] = True
    ends_B2 = torch.tensor([drawn.lengths, drawn.finished]).t() * own_B[:, None]
    ends_B2 = ends_B2.contiguous()
    # Sums with zeros are exact. The drawing itself has left the other rows at zero, but for the padding.
    tokens_BT = drawn.tokens_BT * own_B[:, None].to(drawn.tokens_BT.device)
    PROCESSES.add(tokens_BT, drawn.logprobs_BT, drawn.values_BT, ends_B2)
    lengths, finished = ends_B2.t().tolist()
    return _Drawn(drawn.uniform_BT, tokens_BT, drawn.logprobs_BT, drawn.values_BT, lengths, list(map(bool, finished)))


def _decode(decoding: _Decoding, rows: list[int], drawn: _Drawn, sampling: Sampling, eos_id: int) -> None:
    """Token by token until every one of these rows has ended or is full."""
    rows_A = torch.tensor(rows, device=drawn.tokens_BT.device)
    for t in range(sampling.max_new_tokens):
        logits_AV, values_A = decoding.forward()
        picked_A, logprob_A = _choose(logits_AV, drawn.uniform_BT[rows_A, t], sampling)
        drawn.tokens_BT[rows_A, t], drawn.logprobs_BT[rows_A, t] = picked_A, logprob_A
        if values_A is not None:
            drawn.values_BT[rows_A, t] = values_A
        picked = picked_A.tolist()
        if eos_id in picked:
            for place, token in enumerate(picked):
                if token == eos_id:
                    drawn.lengths[rows[place]], drawn.finished[rows[place]] = t + 1, True
            going = [place for place, token in enumerate(picked) if token != eos_id]
            if not going:
                return
            order = decoding.keep(going)
            order_A = torch.tensor(order, device=rows_A.device)
            rows, rows_A, picked_A = [rows[i] for i in order], rows_A[order_A], picked_A[order_A]
        decoding.feed(picked_A)


def _choose(logits_AV: Tensor, uniform_A: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """The next token of every row and its log-prob under the whole distribution."""
    logits_AV = logits_AV.float()
    if sampling.temperature not in (0.0, 1.0):
        logits_AV = logits_AV / sampling.temperature
    top_A1 = logits_AV.amax(-1, keepdim=True)
    powers_AV = (logits_AV - top_A1).exp_()
    total_A = powers_AV.sum(-1)
    if sampling.temperature == 0.0:
        picked_A = logits_AV.argmax(-1)
    elif sampling.top_p < 1.0 or sampling.top_k > 0:
        kept_AV = truncate_distribution(logits_AV, sampling.top_p, sampling.top_k)
        picked_A = draw((kept_AV - top_A1).exp_(), uniform_A)
    else:
        picked_A = draw(powers_AV, uniform_A)
    picked_logit_A = logits_AV.gather(-1, picked_A[:, None]).squeeze(-1)
    return picked_A, picked_logit_A - top_A1.squeeze(-1) - total_A.log()


class _Decoding(Protocol):
    """Rows being decoded: `forward` looks ahead, `keep` drops rows, `feed` adds the chosen tokens."""

    def forward(self) -> tuple[Tensor, Tensor | None]: ...

    def keep(self, going: list[int]) -> list[int]: ...

    def feed(self, tokens_A: Tensor) -> None: ...


def _decoding(policy: Policy, prompts: list[list[int]], pad_id: int, longest: int) -> _Decoding:
    if policy.fast is not None:
        return _FastDecoding(policy, Decoder(policy.fast, prompts, longest))
    return _PlainDecoding(policy, prompts, pad_id)


class _FastDecoding:
    """By the fast path's decoder."""

    def __init__(self, policy: Policy, decoder: Decoder) -> None:
        self.policy, self.decoder = policy, decoder
        self.head = policy.head
        self.tokens_A: Tensor | None = None

    def forward(self) -> tuple[Tensor, Tensor | None]:
        hidden_AI = self.decoder.prefill() if self.tokens_A is None else self.decoder.step(self.tokens_A)
        value_head = self.policy.value_head
        return self.head.times(hidden_AI), None if value_head is None else value_head(hidden_AI)

    def keep(self, going: list[int]) -> list[int]:
        return self.decoder.keep(going)

    def feed(self, tokens_A: Tensor) -> None:
        self.tokens_A = tokens_A


class _PlainDecoding:
    """By the model's own forward and cache, prompts padded on the left."""

    def __init__(self, policy: Policy, prompts: list[list[int]], pad_id: int) -> None:
        self.policy = policy
        width = max(len(p) for p in prompts)
        device = policy.device
        self.ids = torch.tensor([[pad_id] * (width - len(p)) + p for p in prompts], device=device)
        self.mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)
        self.positions = (self.mask.cumsum(-1) - 1).clamp_min(0)
        self.cache: Any = DynamicCache(config=policy.lm.config)

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
