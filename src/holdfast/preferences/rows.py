"""Rows of JSONL, Parquet and text files: mistakes are named by place, files written whole or not at all."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from holdfast.errors import HoldfastError
from holdfast.preferences.encoding import json_text


@dataclass(frozen=True)
class Row:
    """One row of a file, and where it stands, for errors that name the place."""

    path: Path
    place: str
    values: dict[str, Any]

    def error(self, problem: str) -> HoldfastError:
        return HoldfastError(f"{self.path}, {self.place}: {problem}.")

    def get(self, column: str) -> Any:
        """The value, or None where the column is missing or empty."""
        return self.values.get(column)

    def require(self, column: str) -> Any:
        value = self.values.get(column)
        if value is None:
            there = ", ".join(self.values) or "nothing"
            raise self.error(f"needs a column '{column}' and has {there}")
        return value

    def text(self, column: str, default: str) -> str:
        value = self.values.get(column)
        if value is None:
            return default
        if not isinstance(value, str) or not value:
            raise self.error(f"'{column}' must be a string that is not empty")
        return value

    def texts(self, column: str, default: str) -> tuple[str, ...]:
        """One or more strings: a list of them, or one alone."""
        value = self.values.get(column)
        if not isinstance(value, list):
            return (self.text(column, default),)
        if not value or not all(isinstance(item, str) and item for item in value):
            raise self.error(f"'{column}' must be a string or a list of strings that are not empty")
        return tuple(value)

    def integer(self, column: str, default: int) -> int:
        """An integer, or one written as a string because it is too large for a 64-bit column."""
        value = self.values.get(column)
        if value is None:
            return default
        if isinstance(value, str) and re.fullmatch("-?[0-9]{1,20}", value):
            return int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error(f"'{column}' must be an integer")
        return value


Change = Callable[[dict[str, Any]], dict[str, Any]]


def read_rows(path: str | Path, text_column: str | None = None) -> Iterator[Row]:
    """The rows of a .jsonl or .parquet file, one by one, or of a .txt file if a column for its lines is named."""
    path = Path(path)
    readers: dict[str, Callable[[Path], Iterator[Row]]] = {".jsonl": _read_jsonl, ".parquet": _read_parquet}
    if text_column is not None:
        readers[".txt"] = lambda path: _read_lines(path, text_column)
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise _unknown_extension(path, readers)
    empty = True
    try:
        for row in reader(path):
            empty = False
            yield row
    except OSError as error:
        raise HoldfastError(f"Cannot read {path}: {error.strerror or error}.") from error
    if empty:
        raise HoldfastError(f"{path} is empty; give a file with at least one row.")


def write_rows(
    path: str | Path,
    rows: Iterable[dict[str, Any]],
    overwrite: bool = False,
    settle: Callable[[], Change | None] = lambda: None,
) -> None:
    """Write a .jsonl or .parquet file. It appears whole or not at all, and replaces one only if told to.

    `settle` is called after the last row: what to change in every row, where only all of them together show it.
    """
    path = Path(path)
    writers = {".jsonl": _write_jsonl, ".parquet": _write_parquet}
    writer = writers.get(path.suffix.lower())
    if writer is None:
        raise _unknown_extension(path, writers)
    # In the same directory, because only a rename within one file system is atomic.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        _refuse_existing(path, overwrite)
        with temporary.open("x+b") as file:
            writer(file, rows, settle)
            file.flush()
            os.fsync(file.fileno())
        _refuse_existing(path, overwrite)
        temporary.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
        raise HoldfastError(f"Cannot write {path}: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _unknown_extension(path: Path, known: dict[str, Any]) -> HoldfastError:
    return HoldfastError(f"{path} has an extension that is not known here; use {' or '.join(sorted(known))}.")


def _refuse_existing(path: Path, overwrite: bool) -> None:
    if not overwrite and path.exists():
        raise HoldfastError(f"{path} exists already; choose another name or allow it to be overwritten.")


def _sync_directory(directory: Path) -> None:
    """Make the rename survive a power loss."""
    if os.name != "posix":  # elsewhere a directory cannot be opened
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Lines that are not blank, each with its place; only a newline ends one, whatever else Unicode has."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            place = f"line {number}"
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise Row(path, place, {}).error("is not UTF-8; save the file in that encoding") from error
            if text.strip():
                yield place, text


def _read_lines(path: Path, column: str) -> Iterator[Row]:
    for place, text in _lines(path):
        yield Row(path, place, {column: text})


def _read_jsonl(path: Path) -> Iterator[Row]:
    for place, text in _lines(path):
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Row(path, place, {}).error(f"is not JSON ({error})") from error
        if not isinstance(values, dict):
            raise Row(path, place, {}).error("must be a JSON object with named columns")
        yield Row(path, place, values)


def _read_parquet(path: Path) -> Iterator[Row]:
    pyarrow = _pyarrow()
    with path.open("rb") as file:
        try:
            table = pyarrow.parquet.read_table(file)
            values = table.to_pylist()
        except (pyarrow.ArrowException, UnicodeDecodeError) as error:
            raise HoldfastError(f"{path} cannot be read as Parquet ({error}).") from error
    for number, row in enumerate(values, start=1):
        yield Row(path, f"row {number}", row)


def _write_jsonl(file: BinaryIO, rows: Iterable[dict[str, Any]], settle: Callable[[], Change | None]) -> None:
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


def _write_parquet(file: BinaryIO, rows: Iterable[dict[str, Any]], settle: Callable[[], Change | None]) -> None:
    pyarrow = _pyarrow()
    given = list(rows)
    change = settle()
    try:
        table = pyarrow.Table.from_pylist(given if change is None else [change(row) for row in given])
    except UnicodeEncodeError as error:
        raise HoldfastError("A text holds a lone surrogate, which Parquet cannot hold; write JSONL instead.") from error
    pyarrow.parquet.write_table(table, file)


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise HoldfastError("Parquet files need pyarrow; install it with pip install 'holdfast[parquet]'.") from error
    return pyarrow
