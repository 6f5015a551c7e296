"""Which format the rows of a source are in, by what stands in the first of them; the same rows in our own columns."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from holdfast.data import foreign
from holdfast.data.problems import BadData, Problem
from holdfast.data.rows import Row
from holdfast.data.sources import rows_are_under, scan
from holdfast.errors import HoldfastError

# So many rows are looked at, or as many as hold so much text.
LOOKED_AT, LOOKED_AT_TEXT = 200, 8 * 2**20
# From here on column names are like a format's, and not only made of the same letters.
ALIKE = 0.6
# What names of columns are not: a text that ends as sentences do or has five words, and a number.
_SENTENCE, _NUMBER = re.compile(r"[.?!]\s*$|(\S\s+){4}\S"), re.compile(r"^\s*-?[\d.]+\s*$")


@dataclass(frozen=True)
class Format:
    """One way to write rows: its name, a row of it, what it is known by, and how it becomes our own columns.

    `origins` has for each of those the columns that it may be made of, for errors that name what stands in the file.
    """

    name: str
    example: Mapping[str, Any]
    fits: Callable[[Mapping[str, Any]], bool]
    own: Callable[[Row], dict[str, Any]]
    origins: Mapping[str, Sequence[str]] = field(default_factory=dict)


def is_own(values: Mapping[str, Any]) -> bool:
    return not OWN_COLUMNS.isdisjoint(values)


OWN_COLUMNS = frozenset(("prompt", "chosen", "rejected", "completion", "response", "messages"))
OWN = Format(
    "holdfast",
    {"prompt": "When do you open?", "chosen": "At noon.", "rejected": "Hello."},
    is_own,
    lambda row: row.values,
)
_ASKED = {"role": "user", "content": "Open?"}
FORMATS = {
    known.name: known
    for known in (
        Format(
            "hh-rlhf",
            {"chosen": "\n\nHuman: Open?\n\nAssistant: At noon.", "rejected": "\n\nHuman: Open?\n\nAssistant: Hello."},
            foreign.is_hh,
            foreign.from_hh,
        ),
        Format(
            "sharegpt",
            {"conversations": [{"from": "human", "value": "Open?"}, {"from": "gpt", "value": "At noon."}]},
            foreign.is_sharegpt,
            foreign.from_sharegpt,
            {"messages": ("conversations",), "prompt": ("conversations",)},
        ),
        Format(
            "alpaca",
            {"instruction": "Answer the guest.", "input": "Open?", "output": "At noon."},
            foreign.is_alpaca,
            foreign.from_alpaca,
            {"prompt": ("instruction",), "completion": ("output",)},
        ),
        Format(
            "ultrafeedback",
            {
                "instruction": "Open?",
                "completions": [
                    {"response": "At noon.", "overall_score": 8},
                    {"response": "Hello.", "overall_score": 3},
                ],
            },
            foreign.is_ultrafeedback,
            foreign.from_ultrafeedback,
            {
                "prompt": ("instruction",),
                "chosen": ("chosen", "chosen_response", "completions"),
                "rejected": ("rejected", "rejected_response", "completions"),
            },
        ),
        Format(
            "openai-chat",
            {"messages": [_ASKED, {"role": "assistant", "content": "At noon."}]},
            foreign.is_openai_chat,
            foreign.from_openai_chat,
        ),
        Format(
            "openai-preference",
            {
                "input": {"messages": [_ASKED]},
                "preferred_output": [{"role": "assistant", "content": "At noon."}],
                "non_preferred_output": [{"role": "assistant", "content": "Hello."}],
            },
            foreign.is_openai_preference,
            foreign.from_openai_preference,
            {"prompt": ("input",), "chosen": ("preferred_output",), "rejected": ("non_preferred_output",)},
        ),
        OWN,
    )
}


@dataclass(frozen=True)
class Recognised:
    """The format that rows are read in, and how many of those looked at have it; named by the user, nothing is."""

    format: Format
    fitting: int = 0
    looked_at: int = 0

    @property
    def words(self) -> str:
        """ "hh-rlhf (all of the first 200 rows)"."""
        if not self.looked_at:
            return f"{self.format.name} (as it was named)"
        share = "all" if self.fitting == self.looked_at else f"{self.fitting:,}"
        first = f"{share} of the first {self.looked_at:,} rows" if self.looked_at > 1 else "its one row"
        return f"{self.format.name} ({first})"


class Source:
    """The rows of a source in our own columns, whatever format it has; `recognised` is known from the first row on."""

    def __init__(self, source: str | Path, text_column: str | None = None, format_name: str | None = None) -> None:
        self.source, self._text_column = source, text_column
        if format_name is not None and format_name not in FORMATS:
            raise HoldfastError(f"There is no format {format_name!r}; the formats are {', '.join(FORMATS)}.")
        self.recognised = Recognised(FORMATS[format_name]) if format_name else None

    def __iter__(self) -> Iterator[Row | Problem]:
        items = scan(self.source, self._text_column)
        first: list[Row | Problem] = []
        broken: HoldfastError | None = None
        if self.recognised is None:
            try:
                self._look(items, first)
            except HoldfastError as error:  # what came before it is still to be told first
                broken = error
            rows = [item for item in first if isinstance(item, Row)]
            self.recognised = recognise(rows)
            if self.recognised is None:
                yield from (item for item in first[: first.index(rows[0])])
                yield unknown(rows)
                return
        known, everything = self.recognised.format, chain(first, () if broken else items)
        if known is OWN:
            yield from everything
        else:
            yield from (item if isinstance(item, Problem) else _owned(item, known) for item in everything)
        if broken is not None:
            raise broken

    def _look(self, items: Iterator[Row | Problem], first: list[Row | Problem]) -> None:
        rows = size = 0
        for item in items:
            first.append(item)
            if isinstance(item, Row):
                rows, size = rows + 1, size + _size(item.values)
            if rows == LOOKED_AT or size > LOOKED_AT_TEXT or len(first) >= 10 * LOOKED_AT:
                return


def recognise(rows: Sequence[Row]) -> Recognised | None:
    """The format that most rows have; each counts for the first one it fits, and our own is the last."""
    if not rows:
        return Recognised(OWN)
    found = [next((name for name, known in FORMATS.items() if known.fits(row.values)), "") for row in rows]
    most = max((OWN.name, *FORMATS), key=found.count)
    return Recognised(FORMATS[most], found.count(most), len(rows)) if most in found else None


def _owned(row: Row, known: Format) -> Row | Problem:
    try:
        return replace(row, values=known.own(row), given=row.values, origins=known.origins)
    except BadData as error:
        return error.problem


def unknown(rows: Sequence[Row]) -> Problem:
    """One finding for a source in no known format: its columns, the nearest format, and what to write."""
    names = list(dict.fromkeys(str(name)[:40] for row in rows for name in row.values))
    if rows[0].separator and (line := _line_of_names(rows)):
        what = f"its first line is taken for column names and looks like data; add {line} above it"
        return replace(rows[0].problem("unknown_format", f"is in no format that is known: {what}"), ends=True)
    if column := _rows_within(rows[0]):
        return replace(rows[0].problem("unknown_format", rows_are_under(column)), ends=True)
    there = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") or "none"
    nearest = max(FORMATS.values(), key=lambda known: _nearness(known, names))
    nearest = nearest if _nearness(nearest, names) >= ALIKE else OWN
    example = json.dumps(nearest.example, ensure_ascii=False)
    renaming = rows[0].meant("prompt", names)
    text = (
        f"is in no format that is known: it has the columns {there}{renaming}. The nearest format is {nearest.name}, "
        f"with rows such as {example}. Rename the columns, or name the format: holdfast data convert "
        f"{rows[0].source} OUT.jsonl --format NAME, which is one of {', '.join(FORMATS)}"
    )
    return replace(rows[0].problem("unknown_format", text), ends=True)


def _rows_within(row: Row) -> str:
    """The column whose list holds rows of a known format, as where a file is one object around them."""
    for name, value in row.values.items():
        objects = isinstance(value, list) and value and isinstance(value[0], dict)
        if objects and recognise([replace(row, values=value[0])]) is not None:
            return str(name)
    return ""


def _line_of_names(rows: Sequence[Row]) -> str:
    """What to write above a table whose first line is like the rows after it; empty if that line has names."""
    names = [name for name in rows[0].values if name]
    columns = {name: [value for row in rows if isinstance(value := row.get(name), str)] for name in names}
    if not any(_like(name, values) for name, values in columns.items()):
        return ""
    wanted = {1: ["prompt"], 2: ["prompt", "completion"]}.get(len(names), ["prompt", "chosen", "rejected"])
    line = f"`{rows[0].separator.join(wanted)}`"
    each = f"with a name for each of its {len(names)} columns, such as "
    return f"the line {line}" if len(names) <= len(wanted) else f"a line {each}{line},"


def _like(name: str, values: Sequence[str]) -> bool:
    """Whether a name is one of the values of its column, or a sentence or a number as they are."""
    return name.lower() in map(str.lower, values) or any(
        pattern.search(name) and any(map(pattern.search, values)) for pattern in (_SENTENCE, _NUMBER)
    )


def _nearness(known: Format, names: Sequence[str]) -> float:
    """How much the column names are like a format's, from 0 to 1."""
    columns = [name.lower() for name in names]
    best = [
        max((difflib.SequenceMatcher(None, wanted, name).ratio() for name in columns), default=0.0)
        for wanted in known.example
    ]
    return sum(best) / len(best)


def _size(value: Any) -> int:
    """About how many characters of text a value holds."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(_size(item) for item in value.values())
    return sum(_size(item) for item in value) if isinstance(value, list) else 1
