"""Texts as words that are numbered as they are met."""

from __future__ import annotations

import json

import pytest

from holdfast.models.codec import Codec
from holdfast.models.prompt import Message
from holdfast.models.words import Words

TEXTS = [
    "We are there at noon, aren't we?",
    "  two spaces,\n\na line between\tand a tab ",
    "x = 17 + 25  # 42",
    "猫がいます。 A cat.",
    "ne\u0301e 🙂🙂 \u00a0end",
    "a\0b",
    "",
]


@pytest.mark.parametrize("text", TEXTS)
def test_nothing_of_a_text_is_lost(text: str) -> None:
    words = Words()
    assert words.decode(words(text)["input_ids"]) == text


def test_a_word_has_its_number_and_no_other_text_has_it() -> None:
    words = Words()
    assert words("a cat, a dog")["input_ids"] == [1, 2, 3, 4, 5]  # "a", " cat", ",", " a", " dog"
    assert words("a dog")["input_ids"] == [1, 5]
    assert len(words) == 6
    assert words("a  cat")["input_ids"] != words("a cat")["input_ids"]


def test_scripts_without_spaces_are_read_by_the_character() -> None:
    assert len(Words()("猫がいます")["input_ids"]) == 5


def test_a_codec_of_words_ends_answers_and_encodes_conversations() -> None:
    codec = Codec(Words())
    answer = codec.encode_response("at noon")
    assert answer[-1] == codec.eos_id == 0
    assert codec.decode(answer) == "at noon"
    turns = codec.encode_prompt((Message("user", "when?"),))
    assert turns != codec.encode_prompt("when?")


def test_saved_words_keep_their_numbers() -> None:
    words, again = Words(), Words()
    words("one two three")
    again.restore(json.loads(json.dumps(words.state())))
    assert again(" three two four")["input_ids"] == words(" three two four")["input_ids"]
