"""Ragged rows in padded micro-batches: every row once, within the bound, and every token where it belongs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.models.batches import group_by_length, lay_out, micro_batches, pick_out, take_rows

PAD = 0
PROMPTS = [[5, 6, 7], [8], [9, 10]]
RESPONSES = [[1, 2], [3, 4, 5, 6], [7]]


@settings(max_examples=80, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=60),
    max_tokens=st.integers(1, 300),
    data=st.data(),
)
def test_every_row_once_and_within_the_bound(lengths: list[int], max_tokens: int, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.sampled_from(range(len(lengths))), unique=True))
    groups = group_by_length(rows, lengths, max_tokens)
    assert sorted(i for group in groups for i in group) == sorted(rows)
    for group in groups:
        longest = max(lengths[i] for i in group)
        assert len(group) * longest <= max_tokens or len(group) == 1
    # Longest first, so that a memory limit is met at the start and rows of like length meet.
    in_order = [lengths[i] for group in groups for i in group]
    assert in_order == sorted(in_order, reverse=True)


def test_a_row_longer_than_the_bound_goes_alone() -> None:
    assert group_by_length([0, 1, 2], [3, 50, 3], max_tokens=10) == [[1], [0, 2]]


def test_the_bound_is_rows_times_longest() -> None:
    # 3 rows of 4 are 12 tokens: they fit 12 and not 11.
    assert group_by_length([0, 1, 2], [4, 4, 4], max_tokens=12) == [[0, 1, 2]]
    assert group_by_length([0, 1, 2], [4, 4, 4], max_tokens=11) == [[0, 1], [2]]
    # Equal lengths keep the order of the rows.
    assert group_by_length([2, 0, 1], [4, 4, 4], max_tokens=4) == [[0], [1], [2]]


def test_no_rows_are_no_groups() -> None:
    assert group_by_length([], [4, 4], max_tokens=10) == []


def test_positions_predict_the_tokens_that_follow_them() -> None:
    batch = take_rows(PROMPTS, RESPONSES, [0, 1, 2], PAD, "cpu")
    assert batch.input_ids_BT.tolist() == [[5, 6, 7, 1, 2], [8, 3, 4, 5, 6], [9, 10, 7, 0, 0]]
    assert batch.target_N.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert batch.row_N.tolist() == [0, 0, 1, 1, 1, 1, 2]
    # Row 0: the prompt's last token, at 2, predicts the first response token; and so on.
    assert batch.column_N.tolist() == [2, 3, 0, 1, 2, 3, 1]
    assert batch.last_B.tolist() == [4, 4, 2]
    assert batch.tokens == 7
    predicted = batch.input_ids_BT[batch.row_N, batch.column_N + 1]
    assert torch.equal(predicted, batch.target_N)


def test_micro_batches_name_the_rows_they_hold() -> None:
    batches = micro_batches(PROMPTS, RESPONSES, [2, 0], PAD, max_tokens=5)
    assert [b.rows for b in batches] == [[0], [2]]
    assert [b.input_ids_BT.tolist() for b in batches] == [[[5, 6, 7, 1, 2]], [[9, 10, 7]]]


@pytest.mark.parametrize("max_tokens", [1, 9, 1000])
def test_pick_out_is_the_inverse_of_lay_out(max_tokens: int) -> None:
    values_BT = torch.arange(12, dtype=torch.float32).view(3, 4) + 1
    mask_BT = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]])
    out_BT = torch.zeros(3, 4)
    for batch in micro_batches(PROMPTS, RESPONSES, range(3), PAD, max_tokens):
        picked_N = pick_out(values_BT, batch)
        assert picked_N.tolist() == [values_BT[r, t] for r in batch.rows for t in range(len(RESPONSES[r]))]
        lay_out(picked_N, batch, out_BT)
    assert torch.equal(out_BT, values_BT * mask_BT)


def test_lay_out_leaves_other_rows_and_padding_alone() -> None:
    out_BT = torch.full((3, 4), 9.0)
    lay_out(torch.tensor([1.0, 2.0]), take_rows(PROMPTS, RESPONSES, [0], PAD, "cpu"), out_BT)
    assert out_BT.tolist() == [[1, 2, 9, 9], [9, 9, 9, 9], [9, 9, 9, 9]]


def test_lay_out_takes_the_type_of_its_target() -> None:
    out_BT = torch.zeros(1, 2, dtype=torch.float64)
    lay_out(torch.tensor([1.0, 2.0]), take_rows([[3]], [[4, 5]], [0], PAD, "cpu"), out_BT)
    assert out_BT.tolist() == [[1.0, 2.0]]
