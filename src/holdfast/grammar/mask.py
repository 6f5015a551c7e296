"""What is no grammar: a user's own class that says, state by state, which texts may come next.

    start(prompt) -> state      allowed(state) -> the texts that may come next, "" where the answer may end
    next(state, text) -> state  after one of these texts

States are hashable, so that what was asked once is known. The texts are spelt in whatever tokens the policy has, also
in tokens that reach from one text into the next.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Any, Protocol, Self

from holdfast.errors import HoldfastError, OwnCodeError
from holdfast.grammar.vocabulary import Vocabulary, packed, places
from holdfast.models.prompt import Prompt, plain_text
from holdfast.own_code import load_own

# States of which it is kept what may come next.
MOST_KEPT = 1 << 14
# Tokens that are known to follow are looked for this far ahead.
LONGEST_STRETCH = 256


class Mask(Protocol):
    """What a user's class has."""

    def start(self, prompt: str) -> Hashable:
        """Where an answer to this prompt begins."""
        ...

    def allowed(self, state: Any) -> Iterable[str]:
        """The texts that may come next; an empty one where the answer may end."""
        ...

    def next(self, state: Any, text: str) -> Hashable:
        """The state after one of them."""
        ...


# A state, and how much of a text that may follow it has been written.
Place = tuple[Hashable, bytes]
Places = frozenset[Place]
# The tokens by their bytes: what may follow a byte, and under no byte the tokens that end there.
Trie = dict[int | None, Any]


class MaskRules:
    """A mask in a tokenizer's tokens; what it has said is kept."""

    def __init__(self, mask: Mask, name: str, vocabulary: Vocabulary, trie: Trie) -> None:
        self._mask, self.name, self.vocabulary, self._trie = mask, name, vocabulary, trie
        self._stations: dict[Places, Station] = {}
        self._after = lru_cache(MOST_KEPT)(self._after_byte)
        self._texts = lru_cache(MOST_KEPT)(self._texts_of)

    @classmethod
    def load(cls, spec: str, setting: str, vocabulary: Vocabulary, trie: Trie) -> MaskRules:
        """The class that `path/to/file.py:Class` names, which is called without arguments."""
        kind = load_own(spec, setting)
        missing = [name for name in ("start", "allowed", "next") if not callable(getattr(kind, name, None))]
        if missing:
            raise HoldfastError(f"{spec} has no {' and no '.join(missing)}; a mask has start, allowed and next.")
        try:
            return cls(kind(), spec, vocabulary, trie)
        except Exception as error:
            raise OwnCodeError(f"The mask {spec} could not be made", error) from error

    def start(self, prompt: Prompt) -> Masked:
        """An empty answer to a prompt."""
        state = self._asked("start", plain_text(prompt))
        begun: set[Place] = {(state, b"")}
        if self.vocabulary.drops_space:
            begun.add((_Spaced(state), b""))
        return Masked(self.station(frozenset(begun)))

    def station(self, at: Places) -> Station:
        """Where an answer stands that is in these places."""
        if len(self._stations) > MOST_KEPT:
            self._stations.clear()  # those that answers stand at stay
        return self._stations.setdefault(at, Station(self, at))

    def after(self, at: Places, token: int) -> Station | None:
        """Where a token leads; None where it cannot come."""
        for byte in self.vocabulary.pieces[token]:
            at = self._after(at, byte)
        return self.station(at) if at and self.vocabulary.pieces[token] else None

    def _asked(self, what: str, *given: Any) -> Hashable:
        """The state that the mask's own code gives."""
        try:
            state: Hashable = getattr(self._mask, what)(*given)
            hash(state)
        except Exception as error:
            raise OwnCodeError(
                f"The mask {self.name} failed in {what}({', '.join(map(repr, given))})", error
            ) from error
        return state

    def _texts_of(self, state: Hashable) -> tuple[dict[bytes, str], frozenset[bytes]]:
        """The texts that may follow a state, by their bytes; and all that they begin with and are not yet whole."""
        if isinstance(state, _Spaced):
            return {b" ": " "}, frozenset()
        try:
            texts = tuple(dict.fromkeys(self._mask.allowed(state)))
        except Exception as error:
            raise OwnCodeError(f"The mask {self.name} failed in allowed({state!r})", error) from error
        if wrong := [text for text in texts if not isinstance(text, str)]:
            raise HoldfastError(f"The mask {self.name} allows {wrong[0]!r} after {state!r}, which is no text.")
        whole = {text.encode("utf-8", errors="replace"): text for text in texts}
        return whole, frozenset(text[:length] for text in whole for length in range(1, len(text)))

    def _after_byte(self, at: Places, byte: int) -> Places:
        """Where a further byte leads."""
        found: set[Place] = set()
        for state, written in at:
            longer = written + bytes([byte])
            texts, beginnings = self._texts(state)
            if longer in texts:
                follows = state.state if isinstance(state, _Spaced) else self._asked("next", state, texts[longer])
                found.add((follows, b""))
            if longer in beginnings:
                found.add((state, longer))
        return frozenset(found)

    def bits(self, at: Places) -> bytes:
        """The tokens that may come next, and the end token where the answer may end."""
        ids = [self.vocabulary.end] if any(not w and b"" in self._texts(state)[0] for state, w in at) else []
        waiting: list[tuple[Trie, Places]] = [(self._trie, at)]
        while waiting:
            node, here = waiting.pop()
            ids += node.get(None, ())
            for byte, further in node.items():
                if byte is not None and (there := self._after(here, byte)):
                    waiting.append((further, there))
        return packed(ids, len(self.vocabulary))


class _Spaced:
    """Before a user's first state, a space."""

    def __init__(self, state: Hashable) -> None:
        self.state = state

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Spaced) and other.state == self.state

    def __hash__(self) -> int:
        return hash((_Spaced, self.state))


class Station:
    """Where answers may stand: what may come next, and where each token leads, found out when it is first asked for."""

    def __init__(self, rules: MaskRules, at: Places) -> None:
        self.rules, self.at = rules, at
        self._after: dict[int, Station | None] = {}

    @cached_property
    def bits(self) -> bytes:
        """The tokens that may come next."""
        return self.rules.bits(self.at)

    @cached_property
    def stretch(self) -> list[int]:
        """The tokens that have to come next, one after the other."""
        here, found = self, list[int]()
        size, end = len(self.rules.vocabulary), self.rules.vocabulary.end
        while len(found) < LONGEST_STRETCH and int.from_bytes(here.bits, "little").bit_count() == 1:
            found.append(int(places(here.bits, size)[0]))
            after = None if found[-1] == end else here.after(found[-1])
            if after is None:
                break
            here = after
        return found

    def after(self, token: int) -> Station | None:
        """Where a token leads; None where it cannot come."""
        if token not in self._after:
            self._after[token] = self.rules.after(self.at, token)
        return self._after[token]


class Masked:
    """How far an answer has come under a mask."""

    def __init__(self, station: Station) -> None:
        self.station = station

    def copy(self) -> Masked:
        return Masked(self.station)

    def bits(self) -> bytes:
        return self.station.bits

    @classmethod
    def bits_of(cls, spellers: Sequence[Self]) -> list[bytes]:
        return [speller.bits() for speller in spellers]

    def stretch(self) -> list[int]:
        return self.station.stretch

    def take(self, token: int) -> bool:
        after = self.station.after(token)
        if after is not None:
            self.station = after
        return after is not None

    def take_all(self, tokens: Sequence[int]) -> bool:
        return all(self.take(token) for token in tokens)

    def fits(self, tokens: Sequence[int]) -> bool:
        here, end = self.station, self.station.rules.vocabulary.end
        for place, token in enumerate(tokens):
            if token == end:
                return place == len(tokens) - 1 and bool(here.bits[end >> 3] >> (end & 7) & 1)
            after = here.after(token)
            if after is None:
                return False
            here = after
        return True


def trie_of(vocabulary: Vocabulary) -> Trie:
    """The tokens by their bytes."""
    root: Trie = {}
    for token in vocabulary.ids:
        node = root
        for byte in vocabulary.pieces[token]:
            node = node.setdefault(byte, {})
        node.setdefault(None, []).append(token)
    return root
