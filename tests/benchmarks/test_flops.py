"""Operations counted by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from benchmarks.speed.flops import FORWARD, least_flops, model_flops
from torch.utils.flop_counter import FlopCounterMode

from holdfast.models.tiny import TinyShape, tiny_llama


def test_a_model_small_enough_to_count_by_hand() -> None:
    config = SimpleNamespace(
        hidden_size=4, num_attention_heads=2, num_key_value_heads=1, intermediate_size=6, num_hidden_layers=3,
        vocab_size=10,
    )  # fmt: skip
    # A token in a layer: queries 4x4, key 4x2, value 4x2, output 4x4, gate, up, down 4x6 each, two operations apiece.
    per_token = 2 * (16 + 8 + 8 + 16 + 3 * 24)
    # Sequences of 5 and 2 tokens: scores and weighted values over 4 across, the lower half of the square.
    attention = 2 * 2 * 25 / 2 * 4 + 2 * 2 * 4 / 2 * 4
    head = 2 * 4 * 10 * (3 + 1)
    assert per_token == 240
    assert attention == 232
    assert model_flops(config, [5, 2], [3, 1], FORWARD) == 3 * (240 * 7 + 232) + head == 6056
    assert model_flops(config, [5, 2], [3, 1]) == 3 * 6056


def test_the_least_by_hand() -> None:
    config = SimpleNamespace(
        hidden_size=4, num_attention_heads=2, num_key_value_heads=1, intermediate_size=6, num_hidden_layers=3,
        vocab_size=10,
    )  # fmt: skip
    # A row of 5 with 3 of response: 4 tokens are read, the first of them as prompt only. Keys and values take 32 of the
    # 240 operations of a token in a layer. Two layers for all 4, the third for 3; attention over the lower half of
    # 4 x 4, in the third without the half of 1 x 1; the head for 3.
    inner = 2 * (240 * 4 + 2 * 2 * 4 * 16 / 2)
    last = 32 * 4 + 208 * 3 + 2 * 2 * 4 * (16 / 2 - 1 / 2)
    head = 2 * 4 * 10 * 3
    assert least_flops(config, [5], [3]) == 3 * (inner + last + head) == 3 * 3288
    assert least_flops(config, [5], [3], head=False) == 3 * (inner + last)


def test_no_responses_make_a_trunk() -> None:
    config = tiny_llama(40, TinyShape(16, 2, 2, 32, 64), seed=0).config
    assert model_flops(config, [9], []) == model_flops(config, [9], [4]) - 3 * 2 * 16 * 40 * 4


def test_linear_layers_agree_with_what_torch_counts() -> None:
    lm = tiny_llama(40, TinyShape(16, 2, 2, 32, 64), seed=0)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        lm(input_ids=torch.arange(9)[None], use_cache=False)
    counted = {str(op): n for op, n in counter.get_flop_counts()["Global"].items()}
    linear = sum(n for op, n in counted.items() if "attention" not in op and "bmm" not in op)
    without_attention = model_flops(lm.config, [9], [9], FORWARD) - 2 * (2 * 2 * 81 / 2 * 16)
    assert linear == pytest.approx(without_attention)
