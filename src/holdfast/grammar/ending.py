"""How few tokens an answer still needs, and which tokens leave it room to end in time.

A completion is looked for by taking, again and again, the allowed token that looks most like closing what is open;
where that leads nowhere, by a search for the shortest, bounded. What is found is a real completion, perhaps not the
shortest one. Everything is decided by the tokens so far and the room, so the sets of an answer are the same whenever
they are computed.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from holdfast.grammar.vocabulary import Vocabulary, packed, places

if TYPE_CHECKING:
    from holdfast.grammar.spelling import Speller

# Up to this many tokens are tried one by one; of more, one of each kind.
ONE_BY_ONE = 64
# Tokens that a search for the shortest completion tries: thoroughly, once for a grammar; and on the way.
THOROUGH, BRIEF = 20_000, 2_000
# Tokens from which on each try takes longer, and fewer are made on the way.
LARGE = 4096
# A set of more than this share of the vocabulary is that of free text, where a bracket closes nothing.
FREE_TEXT = 0.3
# Tokens of random answers by which it is measured how much an ending takes, and by how much one token lengthens it.
MEASURED = 240
# Of the ways to an end that they show so many are kept: to see whether one fits is cheaper than to look for one.
KNOWN = 24
# Random answers by which a tokenizer that lacks some characters is tried.
PROBED = 48
# Random answers do not show everything: a token may lengthen an ending by half as much again, and by the rest of a
# character that it begins.
MORE, LONGEST_REST = 1.5, 3


@dataclass(frozen=True)
class Habit:
    """How tokens are looked at in one kind of place: the order in which they close what is open, and their kinds."""

    order: list[int]
    ranks: npt.NDArray[np.int64]
    kinds: npt.NDArray[np.int64]
    closers: int  # of the order, those that do close something

    @classmethod
    def of(cls, vocabulary: Vocabulary, closing: Sequence[re.Pattern[bytes]], kind: Callable[[bytes], bytes]) -> Habit:
        """Of tokens that match one pattern the longest comes first, of those that match none the shortest."""

        def place(token: int) -> tuple[int, int, int]:
            piece = vocabulary.pieces[token]
            if token == vocabulary.end:
                return -1, 0, token
            number = next((n for n, pattern in enumerate(closing) if pattern.fullmatch(piece)), len(closing))
            return number, len(piece) if number == len(closing) else -len(piece), token

        order = sorted(range(len(vocabulary)), key=place)
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = np.arange(len(order))
        names: dict[bytes, int] = {}
        kinds = [names.setdefault(kind(piece) if piece else b"", len(names)) for piece in vocabulary.pieces]
        closers = sum(place(token)[0] < CLOSERS for token in order)
        return cls(order, ranks, np.array(kinds, dtype=np.int64), closers)


@dataclass(frozen=True)
class EndInTime:
    """Leads answers to an end: from `tail` tokens before the room is used up it looks whether they still can.

    `growth` is by how much one token lengthens the rest of an answer at most, as far as random answers have shown.
    """

    vocabulary: Vocabulary
    structure: Habit = field(repr=False)
    text: Habit = field(repr=False)
    singles: npt.NDArray[np.bool_] = field(repr=False)
    phrases: tuple[tuple[int, ...], ...] = ()  # that may be asked for before anything can be closed
    known: tuple[tuple[int, ...], ...] = ()  # ways to an end from some places, the shortest first
    tail: int = 0
    growth: int = 0

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> EndInTime:
        """For a vocabulary, not yet measured on a grammar."""
        structure = Habit.of(vocabulary, CLOSING, _kind)
        text = Habit.of(vocabulary, CLOSING_TEXT, _kind_in_text)
        return cls(vocabulary, structure, text, np.array([len(piece) == 1 for piece in vocabulary.pieces]))

    def hinted(self, texts: Sequence[str]) -> EndInTime:
        """For a grammar that asks for texts like these."""
        phrases = dict.fromkeys(tuple(self.vocabulary.encode(text)) for text in texts)
        return replace(self, phrases=tuple(phrase for phrase in phrases if phrase))

    def measured(self, start: Speller, room: int) -> EndInTime:
        """For the grammar of this empty answer."""
        ways: dict[tuple[int, ...], None] = {}
        growth, steps = 1, 0
        rng = np.random.default_rng(0)
        while steps < MEASURED:
            speller, before = start.copy(), 0
            for step in range(room):
                steps += 1
                ids = self.ids(speller.bits())
                token = int(rng.choice(ids)) if len(ids) else self.vocabulary.end
                if token == self.vocabulary.end or not speller.take(token):
                    break
                way = self.closed(speller, room) or []
                ways.setdefault(tuple(way))
                growth = max(growth, len(way) - before + 1) if step else growth
                before = len(way)
        known = sorted((way for way in ways if way), key=len)
        longest = len(known[-1]) if known else 0
        return replace(
            self,
            # An end is never further away than from the worst place.
            tail=round(MORE * longest) + LONGEST_REST + 1,
            growth=round(MORE * growth) + LONGEST_REST,
            known=tuple(known[:: max(1, len(known) // KNOWN)]),
        )

    def dead_end(self, start: Speller, room: int) -> list[int] | None:
        """The tokens of a random answer that cannot go on, where one of several is met."""
        rng = np.random.default_rng(0)
        for _ in range(PROBED):
            speller, taken = start.copy(), list[int]()
            while len(taken) < room:
                ids = self.ids(speller.bits())
                if len(ids) == 0:
                    return taken
                token = int(rng.choice(ids))
                if token == self.vocabulary.end:
                    break
                if not speller.take(token):
                    return taken  # what is certain to come next is a text that the tokenizer does not have
                taken.append(token)
        return None

    def ids(self, bits: bytes) -> npt.NDArray[np.int64]:
        """The tokens of a set."""
        return places(bits, len(self.vocabulary))

    def _habit(self, count: int) -> Habit:
        return self.text if count > FREE_TEXT * len(self.vocabulary) else self.structure

    def _closer(self, bits: bytes) -> tuple[int, bool, bool] | None:
        """The token of a set that closes most, whether it does close something, and whether it is the only one."""
        count = _count(bits)
        if count == 0:
            return None
        habit = self._habit(count)
        for token in habit.order[:LIKELY]:
            if bits[token >> 3] >> (token & 7) & 1:
                return token, bool(habit.ranks[token] < habit.closers), count == 1
        ids = self.ids(bits)
        token = int(ids[np.argmin(habit.ranks[ids])])
        return token, bool(habit.ranks[token] < habit.closers), count == 1

    def shortest(self, speller: Speller, limit: int, tries: int = THOROUGH) -> list[int] | None:
        """The shortest completion that is found, the end token included.

        None where there is none of up to `limit` tokens, and nothing where the search was given up.
        """
        closed = self.closed(speller, limit)
        searched = self._search(speller, limit if closed is None else len(closed) - 1, tries)
        return searched or closed or searched

    def closed(self, speller: Speller, limit: int) -> list[int] | None:
        """A completion that closes what is open as fast as it can, if that takes up to `limit` tokens."""
        speller, taken, phrase = speller.copy(), list[int](), tuple[int, ...]()
        while len(taken) < limit:
            closer = self._closer(speller.bits())
            if closer is None:
                return None
            token, closes, only = closer
            stretch = speller.stretch() if only and token != self.vocabulary.end else []
            if not closes and not only:
                # The same phrase again would ask for nothing new before something has been closed.
                again, phrase = phrase, next((p for p in self.phrases if p != phrase and speller.fits(p)), ())
                stretch, phrase = list(phrase), phrase or again
            elif closes:
                phrase = ()
            if len(taken) + len(stretch) > limit:
                return None
            steps = stretch or [token]
            taken += steps
            if steps[-1] == self.vocabulary.end:
                return taken if len(taken) <= limit else None
            if not speller.take_all(steps):
                return None
        return None

    def _search(self, speller: Speller, limit: int, tries: int) -> list[int] | None:
        """The shortest completion by uniform cost, states of one length and one set being taken for the same.

        Nothing where more than so many tokens would have to be tried, None where there is no completion.
        """
        waiting: list[tuple[int, int, list[int], Speller]] = [(0, 0, [], speller)]
        seen: set[tuple[int, bytes, tuple[int, ...]]] = set()
        made = 0
        while waiting and made < tries:
            length, _, taken, at = heapq.heappop(waiting)
            if length >= limit:
                return None
            bits = at.bits()
            ids = self.ids(bits)
            only = len(ids) == 1
            if self.vocabulary.end in ids:
                return [*taken, self.vocabulary.end]
            steps = [at.stretch() or ids.tolist()] if only else [[token] for token in self._candidates(ids, True)]
            state = (length, bits, tuple(steps[0]) if only else ())
            if state in seen:
                continue
            seen.add(state)
            for step in steps:
                if length + len(step) >= limit:
                    continue  # and the end token comes after it
                after = at.copy()
                if after.take_all(step):
                    made += 1
                    heapq.heappush(waiting, (length + len(step), made, [*taken, *step], after))
        return [] if waiting else None

    def _candidates(self, ids: npt.NDArray[np.int64], single: bool = False) -> list[int]:
        """The tokens, or of many one of each kind, those that close most first; and all `single` characters."""
        habit = self._habit(len(ids))
        ordered = ids[np.argsort(habit.ranks[ids])]
        if len(ordered) <= ONE_BY_ONE:
            return [int(token) for token in ordered]
        _, first = np.unique(habit.kinds[ordered], return_index=True)
        tried = np.zeros(len(ordered), dtype=bool)
        tried[first] = True
        if single:
            tried |= self.singles[ordered]
        return [int(token) for token in ordered[tried]]

    def in_time(
        self, speller: Speller, bits: bytes, left: int, hint: Sequence[int] = ()
    ) -> tuple[bytes, Sequence[int]]:
        """Of the tokens that may come next those after which the answer can end within `left`, this one included.

        All of them where an end is far enough away or cannot be reached any more: then the answer will be cut. Also the
        way to an end that was found; `hint` is one that may still be a way.
        """
        way = self._way(speller, left, hint)
        if way is None or len(way) + self.growth < left:
            return bits, way or ()
        ids = self.ids(bits)
        if len(ids) == 1:
            return bits, way
        tried = self._candidates(ids)
        known = [rest for rest in (way, way[1:]) if rest]
        good = np.array([token for token in tried if self._ends(speller, token, left, known)], dtype=np.int64)
        if len(ids) > len(tried):  # those of a kind with one that was tried
            kinds = self._habit(len(ids)).kinds
            good = ids[np.isin(kinds[ids], kinds[good])]
        return packed(np.append(good, way[0]), len(self.vocabulary)), way

    def _way(self, speller: Speller, left: int, hint: Sequence[int]) -> list[int] | None:
        """A way to an end within `left`."""
        ways = (hint, hint[1:], *self.known)
        known = next((list(way) for way in ways if 0 < len(way) <= left and speller.fits(way)), None)
        if known is not None and len(known) + self.growth < left:
            return known
        closed = self.closed(speller, left if known is None else len(known) - 1)
        tries = BRIEF * LARGE // max(LARGE, len(self.vocabulary))
        return closed or known or self._search(speller, left, tries) or None

    def _ends(self, speller: Speller, token: int, left: int, known: list[list[int]]) -> bool:
        """Whether an answer that goes on with a token can end within `left`; a way to do so joins the known ones."""
        if token == self.vocabulary.end:
            return True
        after = speller.copy()
        if not after.take(token):
            return False
        if any(len(way) < left and after.fits(way) for way in known):
            return True
        way = self.closed(after, left - 1)
        if way is not None:
            known.append(way)
        return way is not None


# What closes most first; what is none of these comes after them. In text a quotation mark ends it, outside it may begin
# another one.
CLOSING = tuple(re.compile(p) for p in (rb"[\]})]+", rb'"[\]})]+', rb'"', rb'",.*', rb",.*", rb"\d", rb"[a-z]"))
CLOSING_TEXT = CLOSING[1:4] + CLOSING[5:]
# How many of the patterns are of what closes, and not only of what can be closed soon.
CLOSERS = 3
# So many of the order are looked up one by one before the whole set is sorted.
LIKELY = 256


def _count(bits: bytes) -> int:
    return int.from_bytes(bits, "little").bit_count()


def _kind(piece: bytes) -> bytes:
    """Tokens of one kind do the same to what is open, as far as one can see: runs of letters are like one letter."""
    return _RUNS.sub(b"w", re.sub(rb"[0-9]+", b"0", piece)) + _missing(piece)


def _kind_in_text(piece: bytes) -> bytes:
    """In text only what may end it or escape from it is told apart, and what has begun a character."""
    return _kind(piece) if b'"' in piece or b"\\" in piece else b"w" + _missing(piece)


def _missing(piece: bytes) -> bytes:
    """As many bytes as a character lacks that a token begins."""
    lead = next((at for at in range(1, 5) if piece[-at:][:1] >= b"\xc0"), 0)
    length = 0 if not lead else 2 + (piece[-lead] >= 0xE0) + (piece[-lead] >= 0xF0)
    return b"\xff" * max(0, length - lead)


_RUNS = re.compile(rb"[A-Za-z_ \x80-\xff]+")
