"""Documents and bytes that are nearly right: what a seeded generator makes of good ones."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

# Stands in a document for what no writer of JSON would write, and is put in afterwards.
DEEP = "@deep@"
NESTED = 100_000
NUMBERS: tuple[Any, ...] = (
    0, -1, 1, 2**31, -(2**63) - 1, 10**400, 1e308, -1e308, 5e-324, float("nan"), float("inf"), -0.0,
)  # fmt: skip
TEXTS = (
    "", " ", "\0", "\u202eevil", "\ud800", "a\r\nb", "é" * 300, "x" * 100_000, "../../etc/passwd",
    "<script>alert(1)</script>", "__proto__", "None", "nan", "1e999",
    "'; DROP TABLE labels; --", "\x1b[2J", "🦊" * 40, "true",
)  # fmt: skip
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], [None], {"": None}, DEEP)


def odd_value(rng: random.Random) -> Any:
    """A value that somebody may not have thought of."""
    return copy.deepcopy(rng.choice(rng.choice((NUMBERS, TEXTS, OTHERS))))


def mutated_document(rng: random.Random, document: Any) -> Any:
    """The document with one to three of its nodes changed, lost, doubled or exchanged."""
    root = [copy.deepcopy(document)]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        holder, key = rng.choice(_places(root))
        _change(rng, root, holder, key)
    return root[0]


def _places(root: list[Any]) -> list[tuple[Any, Any]]:
    """Every node as the container that holds it and its key there."""
    found: list[tuple[Any, Any]] = []
    waiting: list[Any] = [root]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            found.append((holder, key))
            if isinstance(holder[key], (dict, list)):
                waiting.append(holder[key])
    return found


def _change(rng: random.Random, root: list[Any], holder: Any, key: Any) -> None:
    kind = rng.choice(("odd", "odd", "lose", "double", "exchange", "rename", "wrap"))
    if kind == "lose" and holder is not root:
        del holder[key]
    elif kind == "double" and isinstance(holder, list) and holder is not root:
        holder.insert(key, copy.deepcopy(holder[key]))
    elif kind == "exchange":
        other, place = rng.choice(_places(root))
        # By value: a container that held itself could not be written down.
        holder[key], other[place] = copy.deepcopy(other[place]), copy.deepcopy(holder[key])
    elif kind == "rename" and isinstance(holder, dict):
        holder[rng.choice(("", "Prompt", str(key).upper(), f"{key} ", "\0"))] = holder.pop(key)
    elif kind == "wrap":
        holder[key] = rng.choice(([holder[key]], {"value": holder[key]}))
    else:
        holder[key] = odd_value(rng)


def json_bytes(rng: random.Random, document: Any) -> bytes:
    """A document as JSON, sometimes with what JSON allows and nobody expects, or does not allow."""
    text = json.dumps(document, ensure_ascii=rng.random() < 0.8)
    text = text.replace(
        f'"{DEEP}"', rng.choice(("[" * NESTED + "]" * NESTED, '{"a":' * NESTED + "1" + "}" * NESTED, "[" * NESTED))
    )
    chance = rng.random()
    if chance < 0.05 and "{" in text:
        text = text.replace("{", '{"prompt": 1, "prompt": 2, ', 1)
    elif chance < 0.08:
        text = "\ufeff" + text
    elif chance < 0.11:
        text += rng.choice(("}", "\0", " // done", "\n\n\n", ","))
    return text.encode("utf-8", "surrogatepass")


def mutated_bytes(rng: random.Random, data: bytes) -> bytes:
    """The bytes after a bad disk, a cut, or an editor that knew better."""
    for _ in range(rng.choice((1, 1, 2, 5))):
        data = rng.choice(BYTES)(rng, data)
    return data


def _flip(rng: random.Random, data: bytes) -> bytes:
    if not data:
        return b"\0"
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 8))):
        place = rng.randrange(8 * len(changed))
        changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


def _cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _lose(rng: random.Random, data: bytes) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + data[start + rng.choice((1, 4, 64)) :]


def _double(rng: random.Random, data: bytes) -> bytes:
    start = rng.randrange(len(data) + 1)
    end = start + rng.choice((1, 16, 256))
    return data[:end] + data[start:end] + data[end:]


def _insert(rng: random.Random, data: bytes) -> bytes:
    start = rng.randrange(len(data) + 1)
    return (
        data[:start]
        + rng.choice((b"\0", b"\xff", b'"', b"\n", b"[" * NESTED, b"9" * 5000, b"\xc3", rng.randbytes(8)))
        + data[start:]
    )


def _empty(rng: random.Random, data: bytes) -> bytes:
    return b""


def _noise(rng: random.Random, data: bytes) -> bytes:
    return rng.randbytes(min(len(data), 4096))


def _lines(rng: random.Random, data: bytes) -> bytes:
    """Lines lost, doubled or in another order."""
    lines = data.splitlines(keepends=True)
    if len(lines) < 2:
        return data[::-1]
    place, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    change = rng.choice(("lose", "double", "exchange"))
    if change == "lose":
        del lines[place]
    elif change == "double":
        lines.insert(other, lines[place])
    else:
        lines[place], lines[other] = lines[other], lines[place]
    return b"".join(lines)


BYTES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _flip, _flip, _cut, _cut, _lose, _double, _insert, _insert, _empty, _noise, _lines, _lines,
)  # fmt: skip
