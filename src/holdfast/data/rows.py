"""A row of data, whose mistakes are named by place; JSONL and Parquet files, written whole or not at all."""

from __future__ import annotations

import difflib
import json
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from holdfast.checkpoint.files import sync, sync_directory
from holdfast.data.problems import BadData, Problem
from holdfast.errors import HoldfastError
from holdfast.preferences.encoding import json_text

Unit = Literal["line", "row"]
_SURROGATE = re.compile("[\ud800-\udfff]")

# What other data sets call the columns that are read here.
OTHER_NAMES = {
    "prompt": ("question", "instruction", "query", "input", "text"),
    "chosen": ("chosen_response", "preferred", "accepted", "winner", "response_0"),
    "rejected": ("rejected_response", "dispreferred", "loser", "response_1"),
    "completion": ("answer", "output", "target"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a file, and where it stands, for errors that name the place."""

    source: str
    line: int
    values: dict[str, Any]
    unit: Unit = "line"
    table: bool = False  # one header for all rows: what one row lacks, all lack
    separator: str = ""  # what stands between its cells, where the header is a line of the file
    given: dict[str, Any] | None = None  # the values before they were put into the columns that are read here
    origins: Mapping[str, Sequence[str]] | None = None  # by column, which of those values it may have come from

    def error(self, kind: str, problem: str, ends: bool = False) -> BadData:
        return BadData(self.problem(kind, problem, ends))

    def problem(self, kind: str, text: str, ends: bool = False) -> Problem:
        row = self.values if self.given is None else self.given
        return Problem(self.source, self.line, kind, text, self.unit, ends, row)

    def name(self, column: str) -> str:
        """What the file calls a column."""
        given, origins = self.given or {}, (self.origins or {}).get(column, ())
        return next((name for name in origins if given.get(name) is not None), column)

    def get(self, column: str) -> Any:
        """The value, or None where the column is missing or empty."""
        return self.values.get(column)

    def besides(self, column: str) -> dict[str, Any]:
        """The row as it was given, without one of its columns."""
        row = self.values if self.given is None else self.given
        return {name: value for name, value in row.items() if name != column}

    def require(self, column: str) -> Any:
        value = self.values.get(column)
        if value is not None:
            return value
        if column in self.values:
            raise self.error("null_value", f"needs a column '{column}', which is null here; fill it or remove the row")
        names = [name for name in self.values if isinstance(name, str)]
        there = ", ".join(name[:40] for name in names[:8]) or "nothing"
        # A table has the same columns in every row, so saying it once is enough.
        wanted = f"needs a column '{column}' and has {there}{', ...' if len(names) > 8 else ''}"
        raise self.error("missing_column", wanted + self.meant(column, names), ends=self.table)

    def meant(self, column: str, names: Sequence[str]) -> str:
        """Which of the names that are there may be the column that is not."""
        other = [name for name in OTHER_NAMES.get(column, ()) if name in names]
        near = difflib.get_close_matches(column, [n[:40] for n in names if n not in ("chosen", "rejected")], 1, 0.7)
        return f"; rename '{(near or other)[0]}' if that is it" if near or other else ""

    def text(self, column: str, default: str) -> str:
        value = self.values.get(column)
        if value is None:
            return default
        if not isinstance(value, str) or not value:
            raise self.error("wrong_type", f"'{column}' must be a string that is not empty")
        return self.sound(column, value)

    def sound(self, column: str, text: str) -> str:
        """The text, if a tokenizer and a database can take it."""
        if not text.isascii() and _SURROGATE.search(text):
            what = f"'{self.name(column)}' holds half a character (a lone surrogate); remove it or write the whole one"
            raise self.error("lone_surrogate", what)
        return text

    def texts(self, column: str, default: str) -> tuple[str, ...]:
        """One or more strings: a list of them, or one alone."""
        value = self.values.get(column)
        if not isinstance(value, list):
            return (self.text(column, default),)
        if not value or not all(isinstance(item, str) and item for item in value):
            raise self.error("wrong_type", f"'{column}' must be a string or a list of strings that are not empty")
        return tuple(self.sound(column, item) for item in value)

    def integer(self, column: str, default: int) -> int:
        """An integer, or one written as a string because it is too large for a 64-bit column."""
        value = self.values.get(column)
        if value is None:
            return default
        if isinstance(value, str) and re.fullmatch("-?[0-9]{1,20}", value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error("wrong_type", f"'{column}' must be an integer")
        if abs(value) >= 2 ** (31 if column.endswith("round") else 65):
            raise self.error("wrong_type", f"'{column}' is too large a number")
        return value


RowChange = Callable[[dict[str, Any]], dict[str, Any]]


def write_rows(
    path: str | Path,
    rows: Iterable[dict[str, Any]],
    settle: Callable[[], RowChange | None] = lambda: None,
) -> None:
    """Write a .jsonl or .parquet file. It appears whole or not at all, and never replaces one.

    `settle` is called after the last row: what to change in every row, where only all of them together show it.
    """
    path = Path(path)
    writers = {".jsonl": _write_jsonl, ".parquet": _write_parquet}
    writer = writers.get(path.suffix.lower())
    if writer is None:
        raise unknown_extension(path, writers)
    # In the same directory, because only a rename within one file system is atomic.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        refuse_existing(path)
        with temporary.open("x+b") as file:
            writer(file, rows, settle)
            file.flush()
            sync(file.fileno())
        refuse_existing(path)
        temporary.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        raise HoldfastError(f"Cannot write {path}: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def unknown_extension(path: Path, known: dict[str, Any]) -> HoldfastError:
    return HoldfastError(f"{path} has an extension that is not known here; use {' or '.join(sorted(known))}.")


def refuse_existing(path: Path) -> None:
    """Nothing that is there is ever written over."""
    if path.exists():
        raise HoldfastError(f"{path} exists already; choose another name.")


def _write_jsonl(file: BinaryIO, rows: Iterable[dict[str, Any]], settle: Callable[[], RowChange | None]) -> None:
    for row in rows:
        file.write(json_text(row).encode() + b"\n")
    change = settle()
    if change is None:
        return
    # Row by row through a second file without a name: a large store is never in memory as a whole.
    with tempfile.TemporaryFile(dir=Path(file.name).parent) as changed:
        file.seek(0)
        for line in file:
            changed.write(json_text(change(json.loads(line))).encode() + b"\n")
        changed.seek(0)
        file.seek(0)
        file.truncate()
        shutil.copyfileobj(changed, file)


def _write_parquet(file: BinaryIO, rows: Iterable[dict[str, Any]], settle: Callable[[], RowChange | None]) -> None:
    pyarrow = load_pyarrow()
    values = list(rows)
    change = settle()
    try:
        table = pyarrow.Table.from_pylist(values if change is None else [change(row) for row in values])
    except UnicodeEncodeError as error:
        raise HoldfastError("A text holds a lone surrogate, which Parquet cannot hold; write JSONL instead.") from error
    except pyarrow.ArrowException as error:
        raise HoldfastError("The rows have columns of several types; write JSONL instead of Parquet.") from error
    pyarrow.parquet.write_table(table, file)


def load_pyarrow(what: str = "Parquet files need") -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise HoldfastError(f"{what} pyarrow: run pip install 'holdfast-rl[parquet]'.") from error
    return pyarrow
