"""Batches as the guard sees them, made by hand or by chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from holdfast.guard.view import Known, StepView

LEARNED = {
    "policy/clipfrac_avg": 0.1,
    "val/ratio": 1.01,
    "loss/value_avg": 0.2,
    "val/explained_variance": 0.6,
    "objective/kl_step": 0.04,
}


def view(
    responses: Sequence[Sequence[int]],
    prompts: Sequence[Sequence[int]] | None = None,
    finished: Sequence[bool] | None = None,
    logprob: float = -1.0,
    reference_logprob: float = -1.5,
    scores_KB: Tensor | None = None,
    features_BD: Tensor | None = None,
    learned: Mapping[str, float] = LEARNED,
) -> StepView:
    """A batch whose tokens all have the same log-probs; what lies outside the mask is not a number."""
    count, longest = len(responses), max([len(r) for r in responses], default=0)
    lengths_B = torch.tensor([len(r) for r in responses], dtype=torch.int64)
    mask_BT = torch.arange(longest)[None, :] < lengths_B[:, None]
    nowhere_BT = torch.full((count, longest), float("nan"))
    return StepView(
        prompts=prompts if prompts is not None else [[900 + i] for i in range(count)],
        responses=responses,
        finished=finished if finished is not None else [True] * count,
        logprobs_BT=torch.where(mask_BT, logprob, nowhere_BT),
        reference_logprobs_BT=torch.where(mask_BT, reference_logprob, nowhere_BT),
        mask_BT=mask_BT,
        scores_KB=torch.zeros(3, count) if scores_KB is None else scores_KB,
        features_BD=torch.zeros(count, 2) if features_BD is None else features_BD,
        learned=learned,
    )


def known(counts: Sequence[int] = (), features_MD: Tensor | None = None) -> Known:
    return Known(
        torch.tensor(list(counts) or [0], dtype=torch.int64), torch.zeros(0, 2) if features_MD is None else features_MD
    )


def drawn_view(
    rng: torch.Generator, answers: int = 64, length: float = 40.0, shift: float = 0.0, of_reference: bool = False
) -> StepView:
    """A batch by chance: answers of about `length` tokens of 200, three members, 8 features moved by `shift`."""
    lengths = (length * (0.8 + 0.4 * torch.rand(answers, generator=rng))).round().long().clamp(min=1)
    responses = [torch.randint(200, (int(n),), generator=rng).tolist() for n in lengths]
    prompts = [torch.randint(200, (12,), generator=rng).tolist() for _ in range(answers)]
    mask_BT = torch.arange(int(lengths.max()))[None, :] < lengths[:, None]
    logprobs_BT = -torch.rand(mask_BT.shape, generator=rng) * 4.0
    learned = {name: x * float(1 + 0.1 * torch.randn((), generator=rng)) for name, x in LEARNED.items()}
    return StepView(
        prompts=prompts,
        responses=responses,
        finished=(torch.rand(answers, generator=rng) < 0.9).tolist(),
        logprobs_BT=logprobs_BT,
        reference_logprobs_BT=logprobs_BT if of_reference else logprobs_BT - 0.1 * torch.rand(1, generator=rng),
        mask_BT=mask_BT,
        scores_KB=torch.randn(3, answers, generator=rng),
        features_BD=torch.randn(answers, 8, generator=rng) + shift,
        learned={} if of_reference else learned,
    )
