"""How likely a policy finds given answers: log-probs summed over each answer.

Shapes: B rows, N response tokens of a micro-batch laid end to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from holdfast.grammar.walk import Grammar
from holdfast.models.batches import MicroBatch, lay_out, micro_batches
from holdfast.models.policy import Policy
from holdfast.parallel.cores import CORES
from holdfast.rollout.sampler import Rollout
from holdfast.rollout.support import Support, support_of_answers


def summed_logprobs(policy: Policy, batch: MicroBatch, temperature: float = 1.0) -> Tensor:
    """logprobs_B of the answers of one micro-batch, with gradients."""
    logprobs_N = policy(batch, temperature).logprobs_N
    sums_B = torch.zeros(len(batch.rows), dtype=logprobs_N.dtype, device=logprobs_N.device)
    return sums_B.index_add(0, batch.row_N, logprobs_N)


@torch.no_grad()
def answer_logprobs(
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    responses: Sequence[Sequence[int]],
    pad_id: int,
    max_tokens: int,
    temperature: float = 1.0,
    grammars: Sequence[Grammar | None] | None = None,
) -> Tensor:
    """logprobs_B of all answers, in their order and without gradients; over what their grammars allow, if given."""
    sums_B = torch.zeros(len(prompts))
    if not prompts:
        return sums_B
    pieces = CORES.free if policy.fast is not None else 0
    support = None if grammars is None else support_of_answers(grammars, responses)
    rows = range(len(prompts))
    batches = micro_batches(prompts, responses, rows, pad_id, max_tokens, policy.device, pieces, support)

    def compute(batch: MicroBatch) -> None:
        sums_B[batch.rows] = summed_logprobs(policy, batch, temperature).float().cpu()

    CORES.share([partial(compute, batch) for batch in batches])
    return sums_B


def own_pass(
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    responses: Sequence[Sequence[int]],
    pad_id: int,
    max_tokens: int,
    temperature: float,
    support: Support | None = None,
) -> tuple[Tensor, Tensor | None]:
    """logprobs_BT and, with a value head, values_BT of given answers in one pass."""
    logprobs_BT = torch.zeros(len(responses), max(map(len, responses)))
    values_BT = torch.zeros_like(logprobs_BT)
    pieces = CORES.free if policy.fast is not None else 0
    rows = range(len(prompts))
    batches = micro_batches(prompts, responses, rows, pad_id, max_tokens, policy.device, pieces, support)

    def compute(batch: MicroBatch) -> None:
        with torch.no_grad():  # which each thread has to say for itself
            out = policy(batch, temperature)
        lay_out(out.logprobs_N, batch, logprobs_BT)
        if out.values_N is not None:
            lay_out(out.values_N, batch, values_BT)

    CORES.share([partial(compute, batch) for batch in batches])
    return logprobs_BT, None if policy.value_head is None else values_BT


def over_everything(policy: Policy, rollout: Rollout, pad_id: int, max_tokens: int, temperature: float) -> Rollout:
    """A rollout as if all of the vocabulary could have been drawn at each of its tokens, which is not so."""
    limits = pad_id, max_tokens, temperature
    logprobs_BT, values_BT = own_pass(policy, rollout.prompts, rollout.responses, *limits)
    mask_BT = torch.arange(logprobs_BT.shape[1])[None] < torch.tensor(rollout.lengths)[:, None]
    return replace(rollout, logprobs_BT=logprobs_BT, values_BT=values_BT, mask_BT=mask_BT, support=None)
