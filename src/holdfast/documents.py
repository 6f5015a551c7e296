"""JSON and TOML as they are read, whoever wrote them.

A text that is not the one or the other, or is nested so deeply that no document of ours is, is a ValueError: the caller
says which file it was, and what to do.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

# Tables and lists within each other. What takes a document apart calls itself for each, and may not call for ever.
DEEPEST = 100
# What stands between two dots of a key: a word, or something in quotation marks.
_MAY_BE_A_KEY = re.compile(r"""[ \t]*(?:[^\s=,{}\[\]"']+|[^\n=,{}\[\]]*["'][^\n=,{}\[\]]*)[ \t]*""")
TOO_DEEP = f"it is nested more than {DEEPEST} deep"


def json_of(text: str | bytes, **how: Any) -> Any:
    """What a JSON text holds; `how` is what `json.loads` takes."""
    try:
        value = json.loads(text, **how)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    # Nothing is deeper than it has brackets, so that a row of a log is not walked through.
    openings = text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")
    if openings > DEEPEST:
        check_depth(value)
    return value


def toml_of(text: str) -> dict[str, Any]:
    """What a TOML text holds."""
    if _longest_key(text) > DEEPEST:
        raise ValueError(TOO_DEEP)
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    check_depth(tables)
    return tables


def _longest_key(text: str) -> int:
    """About how many parts the longest a.b.c has. Python's reader needs memory by their square, so they come first."""
    longest = run = 0
    for piece in text.split("."):
        run = run + 1 if _MAY_BE_A_KEY.fullmatch(piece) else 1
        longest = max(longest, run)
    return longest


def check_depth(value: Any) -> None:
    """Refuse what is nested too deeply, without going into it by calls."""
    level = [value]
    for _ in range(DEEPEST + 1):
        holders = [each for each in level if isinstance(each, dict | list)]
        if not holders:
            return
        level = [inner for each in holders for inner in (each.values() if isinstance(each, dict) else each)]
    raise ValueError(TOO_DEEP)
