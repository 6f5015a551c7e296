"""A constant on every advantage, by hand."""

import torch

from holdfast.algorithms.affirmation import affirmed
from holdfast.algorithms.credit import assign_credit

MASK_BT = torch.tensor([[1, 1, 1], [1, 0, 0]])


def test_by_hand() -> None:
    nothing = float("nan")
    advantages_BT = torch.tensor([[0.5, -1.0, 0.0], [-0.25, nothing, nothing]])
    assert affirmed(advantages_BT, MASK_BT, 0.25).tolist() == [[0.75, -0.75, 0.25], [0.0, 0.0, 0.0]]


def test_it_comes_after_whitening_and_leaves_everything_else() -> None:
    """Before it, whitening would take it out again; returns, KL and rewards are what they were."""
    rng = torch.Generator().manual_seed(0)
    logprobs_BT, reference_BT, values_BT = (torch.randn(2, 3, generator=rng) * MASK_BT for _ in range(3))
    scores_B = torch.tensor([1.0, -1.0])
    for advantage, group in (("gae", 1), ("rloo", 2), ("grpo", 2)):
        plain, nudged = (
            assign_credit(
                logprobs_BT, reference_BT, values_BT, scores_B, MASK_BT, 0.1, advantage, group_size=group, offset=offset
            )  # type: ignore[arg-type]
            for offset in (0.0, 0.25)
        )
        torch.testing.assert_close(nudged.advantages_BT, plain.advantages_BT + 0.25 * MASK_BT)
        for one, other in zip(plain[1:], nudged[1:], strict=True):
            assert torch.equal(one, other)
