"""One line of a JSONL file as a row, and what is the matter with a line that is not JSON."""

from __future__ import annotations

import json
import re
from typing import Any

from holdfast.data.problems import Problem
from holdfast.data.rows import Row
from holdfast.documents import DEEPEST, check_depth

_PYTHON_WORDS = ("None", "True", "False", "'")


class RepeatedKey(ValueError):
    """A column that an object names twice; plain JSON readers silently take the last."""


class TooDeep(ValueError):
    """Lists and objects within each other beyond what any row has; who takes it apart calls itself for each."""

    words = f"is nested too deeply, more than {DEEPEST} lists and objects within each other"


def check_row_depth(values: Any, text: str, start: int = 0, end: int | None = None) -> None:
    """Refuse a row that is nested too deeply; one with fewer brackets in its text is not walked through."""
    if text.count("[", start, end) + text.count("{", start, end) > DEEPEST:
        try:
            check_depth(values)
        except ValueError:
            raise TooDeep from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        raise RepeatedKey(next(name for name in names if names.count(name) > 1))
    return values


DECODER = json.JSONDecoder(object_pairs_hook=_object)


def json_row(source: str, line: int, text: str, ended: bool) -> Row | Problem:
    """The row of a line; `ended` says whether a newline came after it, which a line that was cut off has not."""
    try:
        values = DECODER.decode(text)
        check_row_depth(values, text)
    except RepeatedKey as error:
        name = str(error)[:40]
        what = f"has the column '{name}' twice; keep the one that is meant"
        return Problem(source, line, "repeated_key", what, row=text)
    except json.JSONDecodeError as error:
        kind, what = diagnosis(text, error, ended)
        return Problem(source, line, kind, f"is not JSON ({error.msg}, column {error.colno}){what}", row=text)
    except (TooDeep, RecursionError):
        return Problem(source, line, "not_json", f"{TooDeep.words}; remove the line", row=text)
    except ValueError as error:
        return Problem(source, line, "not_json", f"is not JSON ({error}); remove the line", row=text)
    if isinstance(values, dict):
        return Row(source, line, values)
    array = "; write each element of the list on a line of its own" if isinstance(values, list) else ""
    return Problem(source, line, "not_object", f"must be a JSON object with named columns{array}", row=values)


def diagnosis(text: str, error: json.JSONDecodeError, ended: bool) -> tuple[str, str]:
    """The kind of the fault, and what to do about it, from where the reader stopped."""
    at, rest = error.pos, text[error.pos :].lstrip()
    before = text[:at].rstrip()
    if text.startswith("\ufeff"):
        return "bom_inside", ": it begins with a byte-order mark, as where files were joined; remove it"
    if rest.startswith(_PYTHON_WORDS):
        return "python_quotes", ": it is Python; write double quotes, null, true and false, as json.dumps does"
    if (before.endswith(",") and rest[:1] in ("}", "]")) or re.match(r",\s*([}\]]|$)", rest):
        return "trailing_comma", ": it has a comma too many; remove the last one"
    if error.msg == "Extra data":
        return "two_rows", ": it holds more than one row; put each on a line of its own"
    if error.msg.startswith("Invalid control character"):
        return "raw_control", ": a text holds a raw control character; write it as an escape such as \\t"
    if not ended and (not rest or error.msg.startswith("Unterminated string")):
        return "truncated", ": the file ends in the middle of this row; copy it again, or remove the line"
    if text.strip() in ("{", "["):
        return "not_json", ": one row may not go over several lines; write each object on one line"
    if error.msg.startswith("Unterminated string"):
        return "not_json", ": a text has no closing quote; a line break inside a text is written \\n"
    return "not_json", "; mend or remove the line"
