"""Remembering what was there before, in few bytes: hashes of 8 bytes, each with a number, in plain arrays.

A table takes 16 bytes a slot and is at most two thirds full: 24 to 48 bytes for each thing remembered, half as much
again while it grows. A million prompts are 34 MB. Two different texts share a hash of 64 bits with probability
n^2 / 2^65: for a million, one in 37 million.
"""

from __future__ import annotations

import hashlib
from array import array

from holdfast.models.prompt import Prompt


def fingerprint(*parts: str) -> int:
    """64 bits of a hash over texts, of which none can run into the next; never 0."""
    hasher = hashlib.blake2b(digest_size=8)
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass")
        hasher.update(len(raw).to_bytes(8, "little"))
        hasher.update(raw)
    return int.from_bytes(hasher.digest(), "little") or 1


def prompt_fingerprint(prompt: Prompt) -> int:
    """The same for the same prompt on every machine and in every run: what splits go by."""
    if isinstance(prompt, str):
        return fingerprint("plain", prompt)
    return fingerprint("turns", *(text for turn in prompt for text in (turn.role, turn.content)))


class Seen:
    """A hash table from fingerprints to numbers below 2^64, by open addressing."""

    def __init__(self) -> None:
        self._bits, self.count = 10, 0
        self._clear()

    def _clear(self) -> None:
        self._keys = array("Q", bytes(8 << self._bits))
        self._values = array("Q", bytes(8 << self._bits))

    def get(self, key: int) -> int | None:
        """The number kept with a fingerprint."""
        slot = self._slot(key)
        return self._values[slot] if self._keys[slot] else None

    def setdefault(self, key: int, value: int) -> int | None:
        """The number kept with a fingerprint, or None after keeping this one."""
        slot = self._slot(key)
        if self._keys[slot]:
            return self._values[slot]
        self._keys[slot], self._values[slot] = key, value
        self.count += 1
        if 3 * self.count > 2 << self._bits:
            self._grow()
        return None

    def _slot(self, key: int) -> int:
        """Where the key is, or would be; a fingerprint is as good as random, so its low bits are the place."""
        keys, mask = self._keys, (1 << self._bits) - 1
        slot = key & mask
        while (there := keys[slot]) and there != key:
            slot = (slot + 1) & mask
        return slot

    def _grow(self) -> None:
        keys, values = self._keys, self._values
        self._bits += 1
        self._clear()
        for key, value in zip(keys, values, strict=True):
            if key:
                slot = self._slot(key)
                self._keys[slot], self._values[slot] = key, value
