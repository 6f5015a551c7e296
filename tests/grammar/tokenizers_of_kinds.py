"""Small tokenizers of the kinds that models come with, and of kinds whose text is not the joining of its tokens.

And answers in them: one drawn evenly, all that there are, the sets that one was drawn from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from holdfast.grammar.walk import Grammar
from holdfast.models.codec import Codec

TEXTS = [
    '{"name":"Ann","age":12}',
    '[{"x":1.5,"y":-20},{"x":7}]',
    "a cat, the cat – café naïve",
    "yes or no: maybe.",
] * 3
PRINTABLE = [chr(code) for code in range(33, 127)]
SPECIALS = ["<unk>", "<s>", "</s>", "<pad>"]
END = SPECIALS.index("</s>")


def byte_level() -> Codec:
    """Like GPT-2's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(vocab_size=320, special_tokens=SPECIALS, initial_alphabet=alphabet, show_progress=False),
    )
    return codec_of(tokenizer)


def sentencepiece() -> Codec:
    """Like Llama's: spaces as low lines, one before the text, bytes for what has no token."""
    words = ["▁", *PRINTABLE, "é", "▁the", "▁cat", '{"', '":', "name", "12", "ca"]
    vocabulary = [*SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    merges = [("c", "a"), ("1", "2"), ("{", '"'), ('"', ":")]
    tokenizer = Tokenizer(
        models.BPE({t: i for i, t in enumerate(vocabulary)}, merges, unk_token="<unk>", byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return codec_of(tokenizer)


def characters() -> Codec:
    """A token for each character, and a space for a space."""
    vocabulary = {token: i for i, token in enumerate([*SPECIALS, " ", *PRINTABLE])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    tokenizer.decoder = decoders.Fuse()
    return codec_of(tokenizer)


def joined_by_spaces() -> Codec:
    """Words that decoding puts spaces between."""
    vocabulary = {token: i for i, token in enumerate([*SPECIALS, "a", "cat", "no"])}
    return codec_of(Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>")))


def word_pieces() -> Codec:
    """Like BERT's."""
    vocabulary = {token: i for i, token in enumerate([*SPECIALS, "a", "ca", "##t", "no", "##w"])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="<unk>"))
    tokenizer.decoder = decoders.WordPiece()
    return codec_of(tokenizer)


def codec_of(tokenizer: Any) -> Codec:
    return Codec(
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer,
            unk_token="<unk>",
            bos_token="<s>",
            eos_token="</s>",
            pad_token="<pad>",
            clean_up_tokenization_spaces=False,
        )
    )


KINDS = [byte_level, sentencepiece, characters]


def answer(grammar: Grammar, room: int, rng: np.random.Generator) -> list[int]:
    """An answer whose tokens are drawn evenly."""
    walk, tokens = grammar.begin(), list[int]()
    while len(tokens) < room:
        token = int(rng.choice(walk.allowed().nonzero()[:, 0].numpy()))
        walk.take(token)
        tokens.append(token)
        if token == END:
            break
    return tokens


def everything_said(grammar: Grammar, codec: Codec) -> set[str]:
    """The texts of all answers there are."""
    found: set[str] = set()
    waiting: list[list[int]] = [[]]
    while waiting:
        tokens = waiting.pop()
        walk = grammar.begin()
        for token in tokens:
            walk.take(token)
        for token in walk.allowed().nonzero()[:, 0].tolist():
            if token == codec.eos_id:
                found.add(codec.decode(tokens))
            else:
                waiting.append([*tokens, token])
    return found


def sets_of(grammar: Grammar, tokens: Sequence[int]) -> list[Tensor]:
    """The set that each token of an answer was drawn from, in order."""
    walk, sets = grammar.begin(), []
    for token in tokens:
        sets.append(walk.allowed())
        walk.take(token)
    return sets
