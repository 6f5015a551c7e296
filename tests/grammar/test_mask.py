"""Masks of one's own: every answer that the states allow, and no other, in any tokenizer's tokens."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tokenizers_of_kinds import KINDS, answer, byte_level, characters, everything_said

from holdfast.errors import HoldfastError
from holdfast.grammar.grammars import Grammars
from holdfast.models.codec import Codec

EXAMPLE = Path(__file__).parents[2] / "examples" / "structured" / "cumulative.py"


def mask_of(source: str, codec: Codec, place: Path, room: int = 30, prompts: tuple[str, ...] = ("q",)) -> Grammars:
    file = place / "mine.py"
    file.write_text(source)
    grammars = Grammars.of(f"{file}:Mine", codec, room, prompts)
    assert grammars is not None
    return grammars


COUNTING = """
class Mine:
    def start(self, prompt):
        return prompt.count("x")
    def allowed(self, state):
        return [""] if state < 0 else ["12", "1", "cat "] if state else ["."]
    def next(self, state, text):
        return state - 1
"""


@pytest.mark.parametrize("make", KINDS)
def test_what_a_mask_says_and_nothing_else(make: object, tmp_path: Path) -> None:
    """One text is the beginning of another, and tokens reach from one into the next; the prompt says how many."""
    codec: Codec = make()  # type: ignore[operator]
    grammars = mask_of(COUNTING, codec, tmp_path, prompts=("x", "xx", ""))
    texts = ["12", "1", "cat "]
    said = {p: everything_said(grammars.of_prompt(codec.encode_prompt(p)), codec) for p in ("", "x", "xx")}
    assert said[""] == {"."}
    assert said["x"] == {f"{a}." for a in texts}
    assert said["xx"] == {f"{a}{b}." for a in texts for b in texts}


@pytest.mark.parametrize("make", KINDS)
def test_a_cumulative_distribution(make: object) -> None:
    codec, rng = make(), np.random.default_rng(2)  # type: ignore[operator]
    grammars = Grammars.of(f"{EXAMPLE}:Cumulative", codec, 40, ["q"])
    assert grammars is not None
    grammar = grammars.of_prompt(codec.encode_prompt("q"))
    curves = [json.loads(codec.decode(answer(grammar, 40, rng))) for _ in range(30)]
    assert all(len(curve) == 5 and curve[-1] == 1 for curve in curves)
    assert all(a <= b for curve in curves for a, b in pairwise(curve))
    assert len({tuple(curve) for curve in curves}) > 8


def test_the_only_way_is_walked_in_one_stretch(tmp_path: Path) -> None:
    codec = characters()
    walk = mask_of(COUNTING, codec, tmp_path, prompts=("x",)).of_prompt(codec.encode_prompt("x")).begin()
    ids = codec.tokenizer.convert_tokens_to_ids
    assert walk.forced() == []
    walk.take(ids("c"))
    assert walk.forced() == [*map(ids, "at ."), codec.eos_id]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("class Mine:\n    def start(self, prompt): return 0\n", "no allowed and no next"),
        (
            "class Mine:\n    def start(self, p): return []\n    def allowed(self, s): pass\n    next = start",
            "unhashable",
        ),
        (COUNTING.replace('["."]', "[3]"), "which is no text"),
        (COUNTING.replace("return state - 1", "raise ValueError('oh')"), "failed in next"),
        (COUNTING.replace('["."]', '["é"]'), "cannot be met"),
        (COUNTING.replace("return state - 1", "return state"), "cannot be met"),
        (COUNTING.replace('["."]', f'["{"." * 40}"]'), "has 41 tokens"),
    ],
)
def test_a_mask_that_cannot_be_used(source: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match=sentence):
        mask_of(source, characters(), tmp_path)


def test_a_word_of_several_bytes_may_be_spelt_in_pieces(tmp_path: Path) -> None:
    codec = byte_level()
    grammars = mask_of(COUNTING.replace('"cat "', '"né"'), codec, tmp_path, prompts=("x",))
    assert everything_said(grammars.of_prompt(codec.encode_prompt("x")), codec) == {"12.", "1.", "né."}
