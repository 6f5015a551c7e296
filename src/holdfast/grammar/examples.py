"""Short texts that match the patterns of a grammar: hints at how what is open may be closed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from re import _constants as kinds  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from holdfast.documents import json_of
from holdfast.grammar.form import Form

# Texts of a grammar that are kept, and how long they may be.
MOST, LONGEST = 32, 200
# Of formats that are not closed by what closes other texts: one, and what is left of it half way.
FORMATS = {"email": ("a@b.co", "@b.co"), "date": ("2000-01-01", "-01-01", "-01"), "time": ("00:00:00Z", ":00:00Z", "Z")}
# What stands for a character of which many would do.
ANY = "a"


def examples_of(form: Form) -> list[str]:
    """A short text for each pattern in a grammar, and for some formats of a schema what is left of one half way."""
    if form.kind == "regex":
        patterns, formats = [form.text], list[str]()
    elif form.kind == "schema":
        schema = json_of(form.text)
        patterns = [*_said(schema, "pattern")]
        formats = [text for name in _said(schema, "format") for text in FORMATS.get(name, ())]
    else:
        return []
    found = dict.fromkeys([text for pattern in patterns if (text := example(pattern))] + formats)
    return [text for text in found if len(text) <= LONGEST][:MOST]


def example(pattern: str) -> str:
    """A text that matches, among the shortest; empty where the pattern is of another dialect."""
    try:
        return _of(parser.parse(pattern))
    except (re.error, RecursionError, OverflowError):
        return ""


def _said(schema: Any, keyword: str) -> Iterator[str]:
    """What a schema and its parts say for a keyword."""
    if isinstance(schema, Mapping):
        if isinstance(schema.get(keyword), str):
            yield schema[keyword]
        for part in schema.values():
            yield from _said(part, keyword)
    elif isinstance(schema, list):
        for part in schema:
            yield from _said(part, keyword)


def _of(parts: Sequence[tuple[Any, Any]]) -> str:
    return "".join(_one(kind, value) for kind, value in parts)


def _one(kind: Any, value: Any) -> str:
    if kind is kinds.LITERAL:
        return chr(value)
    if kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.POSSESSIVE_REPEAT):
        least, _, inside = value
        return _of(inside) * int(min(least, LONGEST + 1))
    if kind is kinds.SUBPATTERN:
        return _of(value[-1])
    if kind is kinds.BRANCH:
        return min((_of(way) for way in value[1]), key=len)
    if kind is kinds.IN:
        return _member(value)
    if kind is kinds.NOT_LITERAL:
        return ANY if value != ord(ANY) else "b"
    return ANY if kind is kinds.ANY else ""


def _member(members: Sequence[tuple[Any, Any]]) -> str:
    """A character of a set."""
    if members[0][0] is kinds.NEGATE:
        inside = re.compile(f"[{''.join(_written(*member) for member in members[1:])}]")
        return next((char for char in (ANY, "0", " ", ".", "A", "-") if not inside.fullmatch(char)), "")
    kind, value = members[0]
    if kind is kinds.RANGE:
        return chr(value[0])
    if kind is kinds.CATEGORY:
        return {kinds.CATEGORY_DIGIT: "0", kinds.CATEGORY_SPACE: " "}.get(value, ANY)
    return chr(value)


def _written(kind: Any, value: Any) -> str:
    """A member of a set as a pattern writes it."""
    if kind is kinds.RANGE:
        return f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
    if kind is kinds.CATEGORY:
        return {kinds.CATEGORY_DIGIT: r"\d", kinds.CATEGORY_SPACE: r"\s", kinds.CATEGORY_WORD: r"\w"}.get(value, r"\W")
    return re.escape(chr(value))
