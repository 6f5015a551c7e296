"""Hashes that stand for texts: 8 bytes however long they are.

Two different texts share one with probability n^2 / 2^65: for a million texts, one in 37 million.
"""

from __future__ import annotations

import hashlib

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
