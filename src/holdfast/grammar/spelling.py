"""The walk over an answer that every kind of grammar has: what its room asks, forced stretches, sets as tensors.

    speller (what the grammar allows)  ->  in time (what can still end)  ->  the set of a position

Shapes: A walks, V vocabulary.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import HoldfastError
from holdfast.grammar.ending import EndInTime
from holdfast.grammar.vocabulary import Vocabulary
from holdfast.grammar.walk import OffGrammar

# Sets near the end of answers that are kept: an answer is walked again by each pass over it.
MOST_KEPT = 1 << 13
# A set, and the way to an end that was found with it.
Way = tuple[bytes, Sequence[int]]


class Speller(Protocol):
    """How far an answer has come in a grammar, whatever room it has. Sets are written one bit a token."""

    def copy(self) -> Self:
        """Another one that stands in the same place."""
        ...

    def bits(self) -> bytes:
        """The tokens that may come next, the end token where the answer may end; none where no token leads on."""
        ...

    @classmethod
    def bits_of(cls, spellers: Sequence[Self]) -> list[bytes]:
        """The same of several at once."""
        ...

    def stretch(self) -> list[int]:
        """Tokens that have to come next, where only one may; those that are known beyond it too."""
        ...

    def take(self, token: int) -> bool:
        """Go on with a token; False where it cannot be."""
        ...

    def take_all(self, tokens: Sequence[int]) -> bool:
        """Go on with some tokens at once; False where that cannot be."""
        ...

    def fits(self, tokens: Sequence[int]) -> bool:
        """Whether these may come next, one after the other."""
        ...


@dataclass(frozen=True)
class SpeltGrammar:
    """A grammar in a tokenizer's tokens, for answers with so much room; `start` makes the speller of an empty answer.

    `ending` leads answers to an end within `room`, and None lets them be cut.
    """

    start: Callable[[], Speller]
    vocabulary: Vocabulary
    room: int
    ending: EndInTime | None = None
    near_end: OrderedDict[tuple[int, ...], Way] = field(default_factory=OrderedDict, repr=False, compare=False)

    def begin(self) -> Spelling:
        """An answer of which nothing is spelt yet."""
        return Spelling(self, self.start())


class Spelling:
    """One answer being spelt under a grammar."""

    def __init__(self, grammar: SpeltGrammar, speller: Speller) -> None:
        self._grammar, self._speller = grammar, speller
        self._end = grammar.vocabulary.end
        self._left = grammar.room  # tokens that there is room for
        self._taken: list[int] = []
        self._bits: bytes | None = None
        self._certain: list[int] = []  # tokens that have to come next, from `_at` on
        self._at = 0
        self._over = False
        self._way: list[int] = []  # to an end, the last that was looked for; the tokens so far decide it

    def allowed(self) -> Tensor:
        return self.together([self])[0]

    @classmethod
    def together(cls, walks: Sequence[Self]) -> Tensor:
        """bool (A, V): the sets of several walks."""
        size = len(walks[0]._grammar.vocabulary)
        rows = b"".join(walk._set() for walk in walks)
        bits_AB = np.frombuffer(rows, dtype=np.uint8).reshape(len(walks), -1)
        flags_AV = np.unpackbits(bits_AB, axis=1, count=size, bitorder="little")
        return torch.from_numpy(flags_AV).view(torch.bool)

    @classmethod
    def look_ahead(cls, walks: Sequence[Self]) -> None:
        """Compute the sets of several walks at once, where that is faster."""
        waiting = [walk for walk in walks if walk._bits is None and walk._at == len(walk._certain) and not walk._over]
        kinds: dict[type[Speller], list[Self]] = {}
        for walk in waiting:
            kinds.setdefault(type(walk._speller), []).append(walk)
        for kind, of_kind in kinds.items():
            for walk, bits in zip(of_kind, kind.bits_of([walk._speller for walk in of_kind]), strict=True):
                walk._found(bits)

    def forced(self) -> list[int]:
        if self._at == len(self._certain):
            self._set()
        return self._certain[self._at : self._at + self._left]

    def follow(self, most: int) -> list[int]:
        """Take the tokens that come next in any case, at most so many; which they are."""
        if self._at == len(self._certain):
            self._set()
        tokens = self._certain[self._at : self._at + min(most, self._left)]
        if len(tokens) < 2 or tokens[-1] == self._end:
            for token in tokens:
                self.take(token)
            return tokens
        if not self._speller.take_all(tokens):
            raise OffGrammar("The tokens that come next in any case cannot come.")
        self._at += len(tokens)
        for token in tokens if self._way else ():
            self._way = self._way[1:] if self._way[:1] == [token] else self._way
        self._taken += tokens
        self._left -= len(tokens)
        self._bits = None
        self._over = not self._left
        return tokens

    def take(self, token: int) -> None:
        # This and `_found` are what a grammar costs in Python for each token.
        bits = None if self._at < len(self._certain) else self._set()
        if self._at < len(self._certain):
            fits = token == self._certain[self._at] and not self._over
            self._at += 1
        else:
            fits = bits is not None and _has(bits, token)
        if not fits or not (token == self._end or self._speller.take(token)):
            raise OffGrammar(
                f"The token {token} cannot come at place {len(self._taken)} of an answer under this grammar."
            )
        if self._way:
            self._way = self._way[1:] if self._way[0] == token else self._way
        self._taken.append(token)
        self._left -= 1
        self._bits = None
        self._over = token == self._end or not self._left

    def _set(self) -> bytes:
        if self._over:
            raise OffGrammar("The answer has ended, and no token can follow.")
        if self._bits is None:
            if self._at < len(self._certain):
                self._bits = _one(self._certain[self._at], len(self._grammar.vocabulary))
            else:
                self._found(self._speller.bits())
        assert self._bits is not None
        return self._bits

    def _found(self, bits: bytes) -> None:
        """What the grammar allows here: keep of it what can end in time, and see whether it is a single token."""
        bits = self._in_time(bits)
        number = int.from_bytes(bits, "little")
        count = number.bit_count()
        if count == 0:
            raise HoldfastError(
                "An answer under rollout.grammar cannot go on: the policy's tokenizer lacks a character that the "
                "grammar needs, or the grammar is too much for the engine; leave that out of the grammar."
            )
        self._bits = bits
        if count == 1:
            only = number.bit_length() - 1
            stretch = self._speller.stretch() if only != self._end else []
            self._certain = stretch if stretch[:1] == [only] else [only]
            self._at = 0

    def _in_time(self, bits: bytes) -> bytes:
        grammar = self._grammar
        if grammar.ending is None or self._left > grammar.ending.tail:
            return bits
        key = tuple(self._taken)
        kept = grammar.near_end.get(key)
        if kept is None:
            kept = grammar.ending.in_time(self._speller, bits, self._left, self._way)
            grammar.near_end[key] = kept
            if len(grammar.near_end) > MOST_KEPT:
                grammar.near_end.popitem(last=False)
        self._way = list(kept[1])
        return kept[0]


def _has(bits: bytes, token: int) -> bool:
    return 0 <= token < len(bits) * 8 and bool(bits[token >> 3] >> (token & 7) & 1)


def _one(token: int, size: int) -> bytes:
    bits = bytearray(-(-size // 8))
    bits[token >> 3] = 1 << (token & 7)
    return bytes(bits)
