"""The loss of supervised fine-tuning."""

import pytest
import torch

from holdfast.algorithms.logprobs import token_logprobs
from holdfast.algorithms.sft import sft_loss


def test_by_hand() -> None:
    # (1 + 2 + 3) / 3 response tokens = 2; the masked 50 does not count.
    logprobs_BT = torch.tensor([[-1.0, -2.0], [-3.0, -50.0]])
    assert sft_loss(logprobs_BT, torch.tensor([[1, 1], [1, 0]]), token_count=3).item() == pytest.approx(2.0)


def test_micro_batches_add_up_to_the_cross_entropy_of_the_whole() -> None:
    generator = torch.Generator().manual_seed(0)
    logits_BTV = torch.randn(5, 4, 6, generator=generator)
    tokens_BT = torch.randint(6, (5, 4), generator=generator)
    mask_BT = torch.arange(4) < torch.tensor([[4], [1], [2], [3], [1]])
    whole = torch.nn.functional.cross_entropy(logits_BTV[mask_BT], tokens_BT[mask_BT])
    count = int(mask_BT.sum())
    parts = [
        sft_loss(token_logprobs(logits_BTV[rows], tokens_BT[rows], 1.0), mask_BT[rows], count)
        for rows in (slice(0, 2), slice(2, 5))
    ]
    torch.testing.assert_close(parts[0] + parts[1], whole)
