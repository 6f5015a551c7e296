"""Rows of CSV and TSV files as spreadsheets write them: any of four separators, quoted line breaks, BOM, CRLF."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from holdfast.data import lines
from holdfast.data.problems import BadData, Problem
from holdfast.data.rows import Row
from holdfast.documents import json_of

SEPARATORS = (",", ";", "\t", "|")
# The first line of a file that Excel is to open with this separator.
_EXCEL = re.compile(r"sep=(.)")
# Columns whose texts are answers or questions: an empty cell is an empty text. Elsewhere it is no value.
TEXTS = ("prompt", "chosen", "rejected", "completion", "response", "instruction", "input", "output")
_YES_OR_NO = {"true": True, "false": False, "1": True, "0": False}


def header_of(text: str, known: frozenset[str]) -> tuple[str, list[str]] | None:
    """Separator and column names, if a text begins as a table does: with a line of names of which some are known."""
    found = []
    for separator in _candidates(text):
        names = _names(_first_row(text, separator))
        hits = sum(name in known for name in names)
        if hits and all(len(name) <= 60 for name in names):
            found.append((hits, len(names), separator, names))
    if not found:
        return None
    _, _, separator, names = max(found, key=lambda item: item[:2])
    return separator, names


def _candidates(text: str) -> Sequence[str]:
    excel = _EXCEL.match(text)
    return (excel[1],) if excel else SEPARATORS


def _first_row(text: str, separator: str) -> list[str]:
    text = text[6:].lstrip("\r\n") if _EXCEL.match(text) else text
    try:
        return next(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True), [])
    except csv.Error:
        return []


def _names(cells: Sequence[str]) -> list[str]:
    """Column names without spaces around them, in the case that is read here."""
    names = [cell.strip() for cell in cells]
    return [name.lower() if name.isupper() or name.istitle() else name for name in names]


def separated_rows(source: str, file: BinaryIO, separator: str) -> Iterator[Row | Problem]:
    """Rows by the line on which they begin."""
    numbered = _Numbered(source, file)
    csv.field_size_limit(lines.LONGEST_LINE)  # of the whole process; the default refuses answers above 128 KiB
    table = csv.reader(numbered, delimiter=separator, strict=True)
    names: list[str] | None = None
    while True:
        begun = numbered.number + 1
        try:
            cells = next(table, None)
        except BadData as error:
            yield error.problem
            if error.problem.ends:
                return
            continue
        except csv.Error as error:
            # A quote that went over several lines has swallowed rows, so what follows cannot be trusted.
            over = numbered.number > begun
            what = _told(str(error), begun, numbered.number)
            yield Problem(source, begun, "bad_quotes", what, ends=over, row=numbered.text)
            if over:
                return
            continue
        if cells is None:
            return
        if not any(cells) or (begun == 1 and cells[0] == "sep="):
            continue
        if names is None:
            names = _names(cells)
            twice = next((name for name in names if name and names.count(name) > 1), None)
            if twice is not None:
                what = f"has the column '{twice[:40]}' twice; keep the one that is meant"
                yield Problem(source, begun, "repeated_key", what, ends=True)
                return
            continue
        yield _row(source, begun, names, cells, separator)


def _row(source: str, line: int, names: Sequence[str], cells: Sequence[str], separator: str) -> Row | Problem:
    if len(cells) != len(names) and (len(cells) < len(names) or any(cells[len(names) :])):
        what = f"has {len(cells):,} cells where the header names {len(names):,} columns"
        text = f"{what}; put texts with separators or line breaks into double quotes"
        return Problem(source, line, "wrong_cells", text, row=list(cells))
    values = {name: _value(name, cell) for name, cell in zip(names, cells, strict=False) if name}
    return Row(source, line, values, table=True, separator=separator)


def _value(name: str, cell: str) -> Any:
    """A cell as what its column means: messages written as JSON are a list, labels true or false."""
    if name == "label":
        return _YES_OR_NO.get(cell.strip().lower(), cell or None)
    if not cell and name not in TEXTS:
        return None
    if cell.startswith("[") and cell.endswith("]"):
        try:
            value = json_of(cell)
        except ValueError:
            return cell
        turns = isinstance(value, list) and value and all(isinstance(turn, dict) for turn in value)
        if turns and all({"role", "content"} <= turn.keys() or {"from", "value"} <= turn.keys() for turn in value):
            return value
    return cell


def _told(error: str, begun: int, now: int) -> str:
    if "field larger than" in error or "unexpected end" in error:
        return f"opens a double quote that is never closed (line {now} was reached); close it, or write it twice"
    if "expected after" in error:
        where = "" if begun == now else f" in line {now}"
        return f"has text after a closing quote{where}; write a double quote inside a cell twice"
    if "new-line character" in error:
        return "has a line break of old Macs (CR alone); save the file with LF or CRLF"
    return f"is not CSV ({error}); mend or remove it"


class _Numbered:
    """Lines for the CSV reader, which remembers where it is; what cannot be a line is raised from within."""

    def __init__(self, source: str, file: BinaryIO) -> None:
        self._lines = lines.lines_of(source, file)
        self.number, self.text = 0, ""

    def __iter__(self) -> _Numbered:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        if isinstance(line, Problem):
            self.number = line.line
            raise BadData(line)
        self.number, self.text = line[0], line[1][: lines.SHOWN]
        return line[1]
