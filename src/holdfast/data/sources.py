"""Rows from wherever data is: files of any form, a directory of `datasets`, the hub. One by one, never all at once.

What a file is follows from its content; its name decides only where content cannot tell, as with lines of plain text.
What is wrong with one line is a `Problem` in its place, and reading goes on behind it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

from holdfast.data.json_array import array_rows
from holdfast.data.jsonl import json_row
from holdfast.data.lines import lines_of
from holdfast.data.packed import PACKED, opened, packing_of
from holdfast.data.problems import BadData, Problem
from holdfast.data.rows import Row
from holdfast.data.separated import SEPARATORS, header_of, separated_rows
from holdfast.data.tables import HUB, hub_rows, parquet_rows, saved_dataset_rows
from holdfast.documents import json_of
from holdfast.errors import HoldfastError

SAVED_BY_DATASETS = ("dataset_info.json", "dataset_dict.json", "state.json")
# What is looked at to say what a file is.
HEAD = 1 << 16
BOM = b"\xef\xbb\xbf"

# The first bytes of what is not read, and what to do with it.
MAGIC = {
    b"PK\x03\x04": "is a zip archive; unpack it",
    b"BZh": "is compressed by bzip2; unpack it with bunzip2",
    b"\xfd7zXZ": "is compressed by xz; unpack it with unxz",
    b"\xff\xfe": "is UTF-16; save it as UTF-8",
    b"\xfe\xff": "is UTF-16; save it as UTF-8",
}
# Columns of the formats that are known: a line with some of these names is a table's header.
COLUMNS = frozenset({
    "prompt", "chosen", "rejected", "completion", "response", "messages", "label", "instruction", "input", "output",
    "conversations", "completions", "preferred_output", "non_preferred_output", "chosen_response", "rejected_response",
})  # fmt: skip
# One object around all rows: a name, and a list of objects that begins on a later line, where no line is a row.
_AROUND = re.compile(r'\{\s*"([^"\n]{1,40})"\s*:\s*\[\s*\{')

Reader = Callable[[str, BinaryIO], Iterator[Row | Problem]]


def scan(source: str | Path, text_column: str | None = None) -> Iterator[Row | Problem]:
    """Rows and problems in the order of the source; a source that cannot be read at all is a HoldfastError.

    Lines of plain text are rows only if a column for them is named.
    """
    empty = True
    try:
        for item in _items(source, text_column):
            empty = False
            yield item
    except OSError as error:
        raise HoldfastError(f"Cannot read {source}: {error.strerror or error}.") from error
    if empty:
        raise BadData(Problem(str(source), 0, "empty_file", "is empty; give a file with at least one row"))


def _items(source: str | Path, text_column: str | None) -> Iterator[Row | Problem]:
    if str(source).startswith(HUB):
        yield from hub_rows(str(source))
        return
    path = Path(source)
    if path.is_dir():
        if not any((path / name).is_file() for name in SAVED_BY_DATASETS):
            raise HoldfastError(
                f"{path} is a directory, but not one that datasets.save_to_disk wrote; name a file in it."
            )
        yield from saved_dataset_rows(path)
        return
    packing, head = packing_of(path), _head(path)
    if head.startswith(b"PAR1") and not packing:
        yield from parquet_rows(path)
        return
    wrong = _first_bytes(str(path), head, packing)
    if wrong is not None:
        yield wrong
        if wrong.ends:
            return
    read = reader_of(path, head, text_column)
    with opened(path) as file:
        yield from read(str(path), file)


def _head(path: Path) -> bytes:
    with opened(path) as file:
        return file.read(HEAD)


def _first_bytes(source: str, head: bytes, packing: str) -> Problem | None:
    for magic, what in MAGIC.items():
        if head.startswith(magic):
            return Problem(source, 1, "wrong_file", what, ends=True)
    inside = next((name for magic, name in PACKED.items() if head.startswith(magic)), None)
    if packing and (inside or head.startswith(b"PAR1")):
        what = f"is {packing}, and within it {inside or 'Parquet'}; unpack it once"
        return Problem(source, 1, "wrong_file", what, ends=True)
    around = _AROUND.match(head.removeprefix(BOM).decode("utf-8", "replace").lstrip())
    if around is not None and "\n" in around[0] and around[1] not in COLUMNS:
        return Problem(source, 1, "not_object", rows_are_under(around[1]), ends=True)
    if head.startswith(BOM):
        return Problem(source, 1, "bom", "begins with a byte-order mark; save the file as UTF-8 without one")
    return None


def rows_are_under(column: str) -> str:
    return f"is an object around the rows: the rows are under '{column[:40]}'; write that list alone to a file"


def reader_of(path: Path, head: bytes, text_column: str | None) -> Reader:
    """How to read a file, by its first bytes, and where they do not say, by its name."""
    text = head.removeprefix(BOM).decode("utf-8", "replace").lstrip()
    names = [suffix for suffix in path.suffixes if suffix.lower() not in (".gz", ".zst", ".zstd")]
    suffix = names[-1].lower() if names else ""
    plain = suffix == ".txt"
    if text.startswith("[") and (not plain or re.match(r'\[\s*\{\s*"', text)):
        return array_rows
    if not text or (text.startswith("{") and (not plain or _is_object(text.splitlines()[0]))):
        return _json_rows
    header = header_of(text, COLUMNS)
    if header is not None and (not plain or len(header[1]) > 1):
        return partial(separated_rows, separator=header[0])
    if plain and text_column is not None:
        return partial(_text_rows, column=text_column)
    if suffix in (".csv", ".tsv"):
        separator = "\t" if suffix == ".tsv" or "\t" in text.splitlines()[0] else _likely(text.splitlines()[0])
        return partial(separated_rows, separator=separator)
    if suffix in (".jsonl", ".json", ".ndjson"):
        return _json_rows
    wanted = "; name it .txt if each of its lines is a prompt" if text_column is not None and not plain else ""
    what = f"begins neither as JSON nor as CSV with known columns nor as Parquet{wanted}"
    raise BadData(Problem(str(path), 0, "unreadable", what))


def _likely(line: str) -> str:
    """The separator that a header has most of."""
    return max(SEPARATORS, key=line.count)


def _is_object(line: str) -> bool:
    try:
        return isinstance(json_of(line), dict)
    except ValueError:
        return False


def _text_rows(source: str, file: BinaryIO, column: str) -> Iterator[Row | Problem]:
    for line in lines_of(source, file):
        if isinstance(line, Problem):
            yield line
        elif line[1] and not line[1].isspace():
            yield Row(source, line[0], {column: line[1].rstrip("\r\n")})


def _json_rows(source: str, file: BinaryIO) -> Iterator[Row | Problem]:
    for line in lines_of(source, file):
        if isinstance(line, Problem):
            yield line
        elif line[1] and not line[1].isspace():
            yield json_row(source, line[0], line[1].rstrip("\r\n"), line[1].endswith("\n"))
