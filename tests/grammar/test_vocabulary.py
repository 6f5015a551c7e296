"""What each token writes is what decoding has of it."""

from __future__ import annotations

import random

import pytest
from tokenizers_of_kinds import byte_level, characters, joined_by_spaces, sentencepiece, word_pieces

from holdfast.errors import HoldfastError
from holdfast.grammar.vocabulary import Vocabulary, packed, places
from holdfast.models.codec import Codec
from holdfast.models.tiny import word_tokenizer


def words() -> Codec:
    """The package's own."""
    return Codec(word_tokenizer(["a table for two, at noon?", "Yes: 12."]))


@pytest.mark.parametrize("make", [byte_level, sentencepiece, characters, words])
def test_the_tokens_of_an_answer_joined_are_its_text(make: object) -> None:
    codec: Codec = make()  # type: ignore[operator]
    vocabulary = Vocabulary.of(codec)
    assert len(vocabulary.ids) >= len(vocabulary) - 6  # all but special ones
    rng = random.Random(1)
    for _ in range(200):
        ids = [rng.choice(vocabulary.ids) for _ in range(rng.randint(1, 6))]
        whole = b"".join(vocabulary.pieces[i] for i in ids)
        try:
            text = whole.decode()
        except UnicodeDecodeError:
            continue  # half a character
        decoded = codec.tokenizer.decode(ids)
        assert decoded == (text.removeprefix(" ") if vocabulary.drops_space else text)


@pytest.mark.parametrize(("make", "drops"), [(byte_level, False), (sentencepiece, True), (characters, False)])
def test_a_first_space_that_decoding_takes_away(make: object, drops: bool) -> None:
    assert Vocabulary.of(make()).drops_space is drops  # type: ignore[operator]


@pytest.mark.parametrize("make", [joined_by_spaces, word_pieces])
def test_a_tokenizer_that_puts_spaces_in_is_refused(make: object) -> None:
    with pytest.raises(HoldfastError, match="one after the other"):
        Vocabulary.of(make())  # type: ignore[operator]


@pytest.mark.parametrize("make", [byte_level, sentencepiece, characters])
def test_special_tokens_write_nothing(make: object) -> None:
    codec: Codec = make()  # type: ignore[operator]
    pieces = Vocabulary.of(codec).pieces
    assert [pieces[i] for i in codec.tokenizer.all_special_ids] == [b""] * len(codec.tokenizer.all_special_ids)


@pytest.mark.parametrize("make", [byte_level, sentencepiece, characters])
def test_pieces_of_an_answer_are_encoded_as_in_its_middle(make: object) -> None:
    vocabulary = Vocabulary.of(make())  # type: ignore[operator]
    for text in ('{"name":"', "12", ",", "the cat", '"}'):
        assert b"".join(vocabulary.pieces[i] for i in vocabulary.encode(text)) == text.encode()


def test_a_set_as_bits() -> None:
    bits = packed([1, 9], 12)
    assert bits == bytes([0b10, 0b10])
    assert places(bits, 12).tolist() == [1, 9]
