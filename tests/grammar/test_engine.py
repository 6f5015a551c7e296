"""Grammars of every kind with tokenizers of every kind: what can be said, what has to be, and that it ends in time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import torch
from tokenizers_of_kinds import KINDS, answer, byte_level, characters, everything_said, sentencepiece, sets_of

from holdfast.grammar.grammars import Grammars
from holdfast.grammar.walk import Grammar, OffGrammar, allowed_rows
from holdfast.models.codec import Codec

BOXES = {
    "type": "array",
    "minItems": 1,
    "maxItems": 3,
    "items": {
        "type": "object",
        "properties": {
            "kind": {"enum": ["title", "text"]},
            "x": {"type": "integer", "minimum": 0, "maximum": 11},
            "note": {"type": "string", "maxLength": 6},
        },
        "required": ["kind", "x"],
        "additionalProperties": False,
    },
}


def grammar_of(written: str, codec: Codec, room: int, in_time: bool = True) -> Grammar:
    grammars = Grammars.of(written, codec, room, in_time=in_time)
    assert grammars is not None
    return grammars.of_prompt([4])


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize(
    ("written", "texts"),
    [
        ("choices:yes|no|no cat|a.b*c", {"yes", "no", "no cat", "a.b*c"}),
        ("regex:[ab]{1,2}(12)?", {a + b + n for a in "ab" for b in ("", "a", "b") for n in ("", "12")}),
        ('{"enum":[1,"cat",null,{"name":true}]}', {"1", '"cat"', "null", '{"name":true}'}),
        ("choices:ca~t|n", {"ca~t", "n"}),
    ],
)
def test_all_that_a_grammar_says_and_nothing_else(make: Callable[[], Codec], written: str, texts: set[str]) -> None:
    codec = make()
    assert everything_said(grammar_of(written, codec, 40), codec) == texts


@pytest.mark.parametrize("make", [byte_level, sentencepiece])
def test_characters_of_several_bytes(make: Callable[[], Codec]) -> None:
    codec = make()
    assert everything_said(grammar_of("choices:café|naïve", codec, 40), codec) == {"café", "naïve"}


def test_a_lark_grammar(tmp_path: Path) -> None:
    file = tmp_path / "sums.lark"
    file.write_text('start: NUMBER "+" NUMBER\nNUMBER: /[1-3]/\n')
    codec = characters()
    assert everything_said(grammar_of(str(file), codec, 9), codec) == {f"{a}+{b}" for a in "123" for b in "123"}


@pytest.mark.parametrize("make", KINDS)
def test_answers_that_end_are_valid_and_with_room_all_end(make: Callable[[], Codec]) -> None:
    codec, rng = make(), np.random.default_rng(3)
    grammar = grammar_of(json.dumps(BOXES), codec, 90)
    for _ in range(20):
        tokens = answer(grammar, 90, rng)
        assert tokens[-1] == codec.eos_id
        jsonschema.validate(json.loads(codec.decode(tokens)), BOXES)


def test_answers_without_an_end_in_time_are_cut() -> None:
    codec, rng = characters(), np.random.default_rng(3)
    grammar = grammar_of("regex:[a-z]*", codec, 8, in_time=False)
    assert any(answer(grammar, 8, rng)[-1] != codec.eos_id for _ in range(20))


def test_the_end_is_kept_in_reach_and_no_more_is_forbidden_than_that_needs() -> None:
    """Five tokens: with two letters taken and three to go, the bracket has to close two later; so it may still wait."""
    codec = characters()
    grammar = grammar_of("regex:\\([a-z]*\\)", codec, 5)
    a, opening, closing = (codec.tokenizer.convert_tokens_to_ids(t) for t in "a()")
    sets = [set(s.nonzero()[:, 0].tolist()) for s in sets_of(grammar, [opening, a, a, closing, codec.eos_id])]
    assert [len(s) for s in sets] == [1, 27, 27, 1, 1]
    assert sets[3] == {closing}


@pytest.mark.parametrize("make", KINDS)
def test_what_has_to_come_is_what_the_sets_say(make: Callable[[], Codec]) -> None:
    codec, rng = make(), np.random.default_rng(5)
    grammar = grammar_of(json.dumps(BOXES), codec, 90)
    tokens = answer(grammar, 90, rng)
    walk, alone = grammar.begin(), grammar.begin()
    stretches = 0
    for token in tokens:
        forced = walk.forced()
        only = alone.allowed().nonzero()[:, 0].tolist()
        assert (forced[:1] == only) == (len(only) == 1)
        stretches += len(forced) > 1
        walk.take(token)
        alone.take(token)
    assert stretches


def test_the_same_tokens_have_the_same_sets_one_by_one_and_together() -> None:
    codec, rng = byte_level(), np.random.default_rng(7)
    grammar = grammar_of(json.dumps(BOXES), codec, 60)
    answers = [answer(grammar, 60, rng) for _ in range(4)]
    before = [sets_of(grammar, tokens) for tokens in answers]
    again = grammar_of(json.dumps(BOXES), codec, 60)
    for tokens, sets in zip(answers, before, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(sets, sets_of(again, tokens), strict=True))
    walks = [again.begin() for _ in answers]
    for step in range(min(map(len, answers))):
        together = allowed_rows(walks, width=codec.vocabulary + 3)
        assert torch.equal(together[:, : codec.vocabulary], torch.stack([sets[step] for sets in before]))
        assert not together[:, codec.vocabulary :].any()
        for walk, tokens in zip(walks, answers, strict=True):
            walk.take(tokens[step])


def test_a_token_that_cannot_come_is_refused() -> None:
    codec = characters()
    walk = grammar_of("choices:yes|no", codec, 9).begin()
    with pytest.raises(OffGrammar):
        walk.take(codec.tokenizer.convert_tokens_to_ids("a"))
    walk = grammar_of("choices:yes|no", codec, 9).begin()
    for token in codec.encode_response("yes"):
        walk.take(token)
    with pytest.raises(OffGrammar):
        walk.take(4)


def test_what_the_tokenizer_would_write_is_allowed() -> None:
    """An answer that somebody wrote is walked in the tokens that its text is encoded in."""
    for make in KINDS:
        codec = make()
        grammar = grammar_of(json.dumps(BOXES), codec, 200)
        sets_of(grammar, codec.encode_response('[{"kind":"text","x":11,"note":"a cat"},{"kind":"title","x":0}]'))


def test_answers_match_a_pattern() -> None:
    codec, rng = byte_level(), np.random.default_rng(11)
    pattern = r"(cat|naïve)s?, [0-9]{2,4}(\.[05])?"
    grammar = grammar_of(f"regex:{pattern}", codec, 30)
    texts = {codec.decode(answer(grammar, 30, rng)) for _ in range(40)}
    assert all(re.fullmatch(pattern, text) for text in texts)
    assert len(texts) > 10


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("written", ["regex:(.)*", '{"type":"string","pattern":"cat"}', "regex:[^x]*x{3}"])
def test_free_text_ends_in_time(make: Callable[[], Codec], written: str) -> None:
    """Of the many tokens of free text one of a kind is tried: the end, half a character and letters are not of one."""
    codec, rng = make(), np.random.default_rng(13)
    grammar = grammar_of(written, codec, 12)
    assert all(answer(grammar, 12, rng)[-1] == codec.eos_id for _ in range(25))
