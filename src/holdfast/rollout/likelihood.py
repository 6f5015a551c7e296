"""How likely a policy finds given answers: log-probs summed over each answer.

Shapes: B rows, N response tokens of a micro-batch laid end to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from holdfast.grammar.walk import Grammar
from holdfast.models.batches import MicroBatch, micro_batches
from holdfast.models.policy import Policy
from holdfast.parallel.cores import CORES
from holdfast.rollout.support import support_of_answers


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
