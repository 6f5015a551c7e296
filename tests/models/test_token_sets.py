"""Sets of tokens as they are kept: whatever form takes less memory, they are the sets that were put in."""

import pytest
import torch

from holdfast.models.token_sets import AS_BITS, Interned, KeptSets, TokenSets


def _random(count: int, vocabulary: int, share: float) -> torch.Tensor:
    rng = torch.Generator().manual_seed(vocabulary)
    kept_NV = torch.rand(count, vocabulary, generator=rng) < share
    kept_NV[:, -1] = True  # never empty, and the last token is the one that is most easily lost
    return kept_NV


@pytest.mark.parametrize("vocabulary", [1, 8, 23, 1000, 70_000])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.05, 0.5, 1.0])
def test_what_is_put_in_comes_out(vocabulary: int, share: float) -> None:
    kept_NV = _random(9, vocabulary, share)
    kept = KeptSets.of(kept_NV)
    assert torch.equal(kept.kept(), kept_NV)
    order = torch.tensor([3, 3, 8, 0])
    assert torch.equal(kept.picked(order).kept(), kept_NV[order])
    assert torch.equal(KeptSets.joined([kept.picked(torch.tensor([5])), kept]).kept(), kept_NV[[5, *range(9)]])


def test_each_set_takes_the_form_that_is_smaller() -> None:
    # 80 tokens are 10 bytes as bits; ids are 2 bytes each, so up to 5 of them are no larger.
    kept_NV = torch.zeros(3, 80, dtype=torch.bool)
    kept_NV[0, :5], kept_NV[1, :6], kept_NV[2, 79] = True, True, True
    kept = KeptSets.of(kept_NV)
    assert kept.sizes_N.tolist() == [5, AS_BITS, 1]
    assert kept.bytes == 3 * 4 + 6 * 2 + 10


def test_no_positions() -> None:
    kept = KeptSets.of(torch.zeros(0, 30, dtype=torch.bool))
    assert kept.kept().shape == (0, 30)
    assert kept.picked(torch.zeros(0, dtype=torch.long)).bytes == 0


def test_what_is_left_out_is_impossible() -> None:
    # Of 3 known tokens the first set leaves out token 1, the second is everything; the model can say two more.
    out_UX = torch.tensor([[False, True, False, True], [False, False, False, False]])
    kept = KeptSets.of(torch.tensor([[True, True, True, True, True], [False, True, False, False, True]]))
    sets = TokenSets(Interned(out_UX, torch.tensor([0, 1])), kept)
    inf = float("inf")
    assert sets.restrict(torch.zeros(2, 5), truncated=True).tolist() == [
        [0, -inf, 0, -inf, -inf],
        [-inf, 0, -inf, -inf, 0],
    ]
    assert sets.restrict(torch.zeros(2, 5), truncated=False)[1].tolist() == [0] * 5
    assert sets.restrict(torch.zeros(1, 5), True, slice(1, 2)).tolist() == [[-inf, 0, -inf, -inf, 0]]
