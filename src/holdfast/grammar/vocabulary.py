"""What each token of a tokenizer writes, in bytes, as decoding has it: found by decoding, not by knowing the kind."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.errors import HoldfastError
from holdfast.models.codec import Codec

# Tokens that are decoded together to see whether what they write is what each of them writes.
TOGETHER = 8
# The share of a vocabulary that may decode in ways of its own and is left out; beyond it the reading is wrong.
STRANGE = 0.02
# Texts that stand before another one while it is encoded, so that nothing is done to its beginning.
BEFORE = ("a", "\n", ".", "x=", "0")
KEPT = 1 << 14


@dataclass(frozen=True)
class Vocabulary:
    """The bytes of every token; none for a token that no grammar ever allows, as special and added ones."""

    pieces: tuple[bytes, ...]
    end: int
    drops_space: bool  # decoding leaves out a space that an answer begins with
    encode: Callable[[str], list[int]] = field(repr=False, compare=False, default=lambda text: [])

    def __len__(self) -> int:
        return len(self.pieces)

    @classmethod
    def of(cls, codec: Codec) -> Vocabulary:
        """The vocabulary of a codec, held against what its tokenizer decodes."""
        tokenizer = codec.tokenizer
        added = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder, codec.eos_id}
        names = tokenizer.convert_ids_to_tokens(list(range(codec.vocabulary)))
        plain = [i for i, name in enumerate(names) if i not in added and name]
        read = max((_agreed(tokenizer, _read(names, plain, kind)) for kind in (_byte_level, _metaspace)), key=len)
        if len(read) >= (1 - STRANGE) * len(plain) > 0:
            pieces = tuple(read.get(i, (b"", ""))[0] for i in range(codec.vocabulary))
            return cls(pieces, codec.eos_id, _drops_space(tokenizer, read), _encoder(tokenizer, pieces))
        raise HoldfastError(
            "rollout.grammar needs a tokenizer whose text is its tokens' texts one after the other, and this one's is "
            "not: it puts spaces between tokens or takes some away (clean_up_tokenization_spaces in "
            "tokenizer_config.json). Take a policy with a byte-level or sentencepiece tokenizer."
        )

    @cached_property
    def complete(self) -> bool:
        """Whether there is a token for every byte that texts have, so that any text can be spelt."""
        single = {piece for piece in self.pieces if len(piece) == 1}
        return all(bytes([byte]) in single for byte in range(0xF5) if byte not in (0xC0, 0xC1))

    @property
    def ids(self) -> list[int]:
        """The tokens that write something."""
        return [i for i, piece in enumerate(self.pieces) if piece]


def _byte_level(name: str) -> bytes | None:
    """The bytes of a token that is written in GPT-2's alphabet, one character for each byte."""
    try:
        return bytes(_ALPHABET[char] for char in name)
    except KeyError:
        return None


def _alphabet() -> dict[str, int]:
    """Printable bytes stand for themselves, the others for the characters from U+0100 on."""
    itself = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in set(itself)]
    return {chr(b): b for b in itself} | {chr(256 + place): byte for place, byte in enumerate(others)}


_ALPHABET = _alphabet()


def _metaspace(name: str) -> bytes | None:
    """Of a token in which a low line stands for a space and <0x0A> for a byte; other tokens are as they are written."""
    if len(name) == 6 and name.startswith("<0x") and name.endswith(">"):
        try:
            return bytes([int(name[3:5], 16)])
        except ValueError:
            pass
    return name.replace("▁", " ").encode("utf-8", errors="surrogatepass")


# Of each token its bytes, and how the tokenizer writes it.
Read = dict[int, tuple[bytes, str]]


def _read(names: Sequence[str], plain: Sequence[int], kind: Callable[[str], bytes | None]) -> Read:
    return {i: (piece, names[i]) for i in plain if (piece := kind(names[i])) is not None}


def _agreed(tokenizer: Any, read: Read) -> Read:
    """The tokens that write what was read, among others and beside each other."""
    anchor = _anchor(read)
    if anchor is None:
        return {}
    whole = [i for i, (piece, _) in read.items() if _is_text(piece)]
    # In an order of no meaning, so that tokens stand beside others than their neighbours in the vocabulary.
    random.Random(0).shuffle(whole)
    groups = [whole[start : start + TOGETHER] for start in range(0, len(whole), TOGETHER)]
    groups += [[i] for i, (piece, _) in read.items() if not _is_text(piece)]
    wrong: set[int] = set()
    for group in groups:
        if not _decodes(tokenizer, [anchor, *group, anchor], read):
            alone = [i for i in group if not _decodes(tokenizer, [anchor, i, anchor], read)]
            if not alone:
                return {}  # each is as it was read, and together they are something else
            wrong |= set(alone)
            if len(wrong) > STRANGE * len(read) + 1:
                return {}
    return {i: piece for i, piece in read.items() if i not in wrong}


def _anchor(read: Read) -> int | None:
    """A token that is written as letters or digits, one without a space if there is one."""
    words = [i for i, (piece, name) in read.items() if piece.strip().isalnum() and not name.startswith("<")]
    return min(words, key=lambda i: read[i][0].startswith(b" "), default=None)


def _is_text(piece: bytes) -> bool:
    try:
        piece.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _decodes(tokenizer: Any, ids: Sequence[int], read: Read) -> bool:
    text = tokenizer.decode(list(ids), skip_special_tokens=True)
    joined = b"".join(read[i][0] for i in ids).decode("utf-8", errors="replace")
    # An answer's own first space is another matter.
    return bool(text == joined or " " + text == joined)


def _drops_space(tokenizer: Any, read: Read) -> bool:
    spaced = next((i for i, (piece, _) in read.items() if piece.startswith(b" ")), None)
    other = _anchor(read)
    if spaced is None or other is None:
        return False
    return not tokenizer.decode([spaced, other], skip_special_tokens=True).startswith(" ")


def _encoder(tokenizer: Any, pieces: tuple[bytes, ...]) -> Callable[[str], list[int]]:
    """The tokens of a piece of an answer, as the tokenizer would have them in the middle of a text."""
    first: dict[int, list[int]] = {}
    for i in sorted((i for i, piece in enumerate(pieces) if piece), key=lambda i: -len(pieces[i])):
        first.setdefault(pieces[i][0], []).append(i)
    before = [(text, _ids(tokenizer, text)) for text in BEFORE]

    @lru_cache(KEPT)
    def encoded(text: str) -> tuple[int, ...]:
        wanted = text.encode("utf-8", errors="surrogatepass")
        for start, start_ids in before:
            ids = _ids(tokenizer, start + text)
            rest = ids[len(start_ids) :]
            if ids[: len(start_ids)] == start_ids and b"".join(pieces[i] for i in rest) == wanted:
                return tuple(rest)
        # What the tokenizer would write otherwise, by the longest tokens there are.
        found: list[int] = []
        while wanted:
            longest = next((i for i in first.get(wanted[0], ()) if wanted.startswith(pieces[i])), None)
            if longest is None:
                return tuple(found)
            found.append(longest)
            wanted = wanted[len(pieces[longest]) :]
        return tuple(found)

    return lambda text: list(encoded(text))


def _ids(tokenizer: Any, text: str) -> list[int]:
    return [int(i) for i in tokenizer(text, add_special_tokens=False)["input_ids"]]


Bits = npt.NDArray[np.uint8]


def places(bits: bytes, size: int) -> npt.NDArray[np.int64]:
    """The tokens of a set that is written one bit a token, the lowest first."""
    return np.nonzero(np.unpackbits(np.frombuffer(bits, dtype=np.uint8), count=size, bitorder="little"))[0]


def packed(ids: Sequence[int] | npt.NDArray[np.int64], size: int) -> bytes:
    """The set of these tokens, one bit a token."""
    flags = np.zeros(size, dtype=np.uint8)
    flags[np.asarray(ids, dtype=np.int64)] = 1
    return np.packbits(flags, bitorder="little").tobytes()
