"""The sampler: prompts in, responses with their log-probs (and values) out.

Rows are decoded with a KV cache, and rows that have ended leave the batch, so no token is computed for a finished
answer. Every draw uses a uniform number fixed per row and position beforehand, so which rows leave, and when, decides
nothing about the others.

Shapes: B rows, A rows still active, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from holdfast.grammar.walk import Grammar
from holdfast.models.policy import Policy
from holdfast.models.sharding import whole
from holdfast.parallel.cores import CORES
from holdfast.parallel.processes import PROCESSES
from holdfast.rollout.choice import Sampling, choose
from holdfast.rollout.decoding import Decoding, decoding_of
from holdfast.rollout.drawn import RowsDrawn, gathered_sets
from holdfast.rollout.support import Support
from holdfast.rollout.walks import decode_under

# Weights from which on a token's work outweighs Python's, of which only one core does any at a time.
WORTH_CUTTING = 1_000_000
# Rows that a core has to have of its own for the same reason.
LEAST_ROWS = 16


@dataclass(frozen=True)
class Rollout:
    """Prompts and sampled responses, ragged as lists, with per-token values padded on the right.

    Log-probs are at the sampling temperature, over the tokens that could have been drawn: `support` has them, where
    those were not all. The mask leaves out what had to come. `server_gap` is how far a server's own log-probs were from
    ours, where one did the sampling. `texts` are the answers as they were given, where another tokenizer made them and
    `responses` are in other tokens.
    """

    prompts: list[list[int]]
    responses: list[list[int]]
    logprobs_BT: Tensor
    values_BT: Tensor | None
    mask_BT: Tensor
    finished: list[bool]
    server_gap: float | None = None
    texts: list[str] | None = None
    support: Support | None = None

    @property
    def lengths(self) -> list[int]:
        return [len(r) for r in self.responses]

    @property
    def grammars(self) -> Sequence[Grammar | None] | None:
        """What each answer had to be, where anything was asked for."""
        return None if self.support is None else self.support.grammars

    @property
    def crossing(self) -> Rollout:
        """The same as it is told to other processes, which may not have its grammars."""
        several = PROCESSES.world > 1 and self.support is not None
        return replace(self, support=self.support.without_grammars()) if several and self.support else self


@torch.no_grad()
def sample(
    policy: Policy,
    prompts: Sequence[list[int]],
    sampling: Sampling,
    eos_id: int,
    pad_id: int,
    rng: torch.Generator,
    grammars: Sequence[Grammar | None] | None = None,
) -> Rollout:
    """One response to each prompt, under its grammar if it has one. At temperature 0 the likeliest token is taken."""
    uniform_BT = torch.rand(len(prompts), sampling.max_new_tokens, generator=rng, dtype=torch.float64)
    needed: dict[str, Any] = {
        "prompts": list(prompts), "sampling": sampling, "eos_id": eos_id, "pad_id": pad_id, "uniform_BT": uniform_BT,
    }  # fmt: skip
    grammars = grammars if grammars is not None and any(grammar is not None for grammar in grammars) else None
    constrained = grammars is not None
    with PROCESSES.joint("sample", [policy], **needed, constrained=constrained), whole(policy):
        return sample_with(policy, **needed, grammars=grammars)


@torch.no_grad()
def sample_with(
    policy: Policy,
    prompts: Sequence[list[int]],
    sampling: Sampling,
    eos_id: int,
    pad_id: int,
    uniform_BT: Tensor,
    grammars: Sequence[Grammar | None] | None = None,
) -> Rollout:
    """The same with uniform numbers that have been drawn; in joint work each process decodes some of the rows."""
    drawn = RowsDrawn.nothing(uniform_BT, pad_id, policy.device)
    # Prompts of similar length go together: less padding on the left.
    mine = PROCESSES.part(sorted(range(len(prompts)), key=lambda i: len(prompts[i])))
    chunks = _chunks(mine, sampling.max_batch, CORES.free if policy.weights >= WORTH_CUTTING else 1)

    def beginning(asked: list[list[int]]) -> Decoding:
        return decoding_of(policy, asked, pad_id, sampling.max_new_tokens)

    def decode(rows: list[int]) -> None:
        asked = [prompts[i] for i in rows]
        if grammars is None:
            _decode(beginning(asked), rows, drawn, sampling, eos_id)
        else:
            decode_under([grammars[i] for i in rows], rows, asked, beginning, drawn, sampling, eos_id)

    CORES.share([partial(decode, rows) for rows in chunks])
    kept = drawn.kept
    if PROCESSES.together:
        drawn = drawn.gathered(mine)
    lengths = drawn.lengths
    width = max(lengths)
    mask_BT = torch.arange(width)[None] < torch.tensor(lengths)[:, None]
    if grammars is not None:
        mask_BT = drawn.free_BT[:, :width].contiguous()
    if PROCESSES.together and sampling.truncates:
        own_B = torch.zeros(len(prompts), dtype=torch.bool)
        own_B[mine] = True
        kept = gathered_sets(kept, policy.vocabulary, own_B.repeat_interleave(mask_BT.sum(1)))
    responses = [row[:length] for row, length in zip(drawn.tokens_BT.tolist(), lengths, strict=True)]
    under = None if grammars is None else list(grammars)
    return Rollout(
        prompts=[list(p) for p in prompts],
        responses=responses,
        logprobs_BT=drawn.logprobs_BT[:, :width].cpu().contiguous(),
        values_BT=None if policy.value_head is None else drawn.values_BT[:, :width].cpu().contiguous(),
        mask_BT=mask_BT,
        finished=drawn.finished,
        support=None if under is None and kept is None else Support(mask_BT, responses, under, kept),
    )


def _chunks(rows: list[int], most: int, cores: int) -> list[list[int]]:
    """Rows that are decoded together, at most so many; where there is only one such lot, each core takes some of it."""
    lots = [rows[start : start + most] for start in range(0, len(rows), most)]
    if len(lots) > 1:
        return lots
    parts = max(1, min(cores, len(rows) // LEAST_ROWS))
    return [rows[first::parts] for first in range(parts)] if rows else []


def _decode(decoding: Decoding, rows: list[int], drawn: RowsDrawn, sampling: Sampling, eos_id: int) -> None:
    """Token by token until every one of these rows has ended or is full."""
    rows_A = torch.tensor(rows, device=drawn.tokens_BT.device)
    for t in range(sampling.max_new_tokens):
        logits_AV, values_A = decoding.forward()
        picked_A, logprob_A, kept_AV = choose(logits_AV, drawn.uniform_BT[rows_A, t], sampling)
        drawn.tokens_BT[rows_A, t], drawn.logprobs_BT[rows_A, t] = picked_A, logprob_A
        if values_A is not None:
            drawn.values_BT[rows_A, t] = values_A
        if kept_AV is not None:
            drawn.keep(rows_A.cpu(), torch.full((len(rows),), t), kept_AV)
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
