"""Rows from wherever data is: JSONL, text, Parquet, a directory of `datasets`, the hub. One by one, never all at once.

What is wrong with one line is a `Problem` in its place, and reading goes on behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from holdfast.data.jsonl import json_row
from holdfast.data.problems import BadData, Problem
from holdfast.data.rows import Row, unknown_extension
from holdfast.data.tables import HUB, hub_rows, parquet_rows, saved_dataset_rows
from holdfast.errors import HoldfastError

# One line is in memory at a time. A file without line breaks must not be one line of any length.
LONGEST_LINE = 64 * 2**20

SAVED_BY_DATASETS = ("dataset_info.json", "dataset_dict.json", "state.json")

# The first bytes of files that are something else than their name says, and what to do with them.
MAGIC = {
    b"\x1f\x8b": "is gzip; unpack it with gunzip",
    b"PK\x03\x04": "is a zip archive; unpack it",
    b"\x28\xb5\x2f\xfd": "is compressed by zstandard; unpack it with unzstd",
    b"BZh": "is compressed by bzip2; unpack it with bunzip2",
    b"PAR1": "is Parquet; name it .parquet",
    b"\xff\xfe": "is UTF-16; save it as UTF-8",
    b"\xfe\xff": "is UTF-16; save it as UTF-8",
}


def scan(source: str | Path, text_column: str | None = None) -> Iterator[Row | Problem]:
    """Rows and problems in the order of the source; a source that cannot be read at all is a HoldfastError.

    The source is a .jsonl or .parquet file, a .txt file if a column for its lines is named, a directory that
    `datasets` saved, or hub:owner/name.
    """
    empty = True
    try:
        for item in _reader(source, text_column):
            empty = False
            yield item
    except OSError as error:
        raise HoldfastError(f"Cannot read {source}: {error.strerror or error}.") from error
    if empty:
        raise BadData(Problem(str(source), 0, "empty_file", "is empty; give a file with at least one row"))


def _reader(source: str | Path, text_column: str | None) -> Iterator[Row | Problem]:
    if str(source).startswith(HUB):
        return hub_rows(str(source))
    path = Path(source)
    if path.is_dir() and any((path / name).is_file() for name in SAVED_BY_DATASETS):
        return saved_dataset_rows(path)
    readers: dict[str, Callable[[Path], Iterator[Row | Problem]]] = {".jsonl": _read_jsonl, ".parquet": parquet_rows}
    if text_column is not None:
        readers[".txt"] = lambda path: _read_text(path, text_column)
    reader = readers.get(path.suffix.lower())
    if reader is None:
        if path.is_dir():
            raise HoldfastError(
                f"{path} is a directory, but not one that datasets.save_to_disk wrote; name a file in it."
            )
        raise unknown_extension(path, readers)
    return reader(path)


def _read_text(path: Path, column: str) -> Iterator[Row | Problem]:
    for line in _lines(path):
        yield line if isinstance(line, Problem) else Row(str(path), line[0], {column: line[1]})


def _read_jsonl(path: Path) -> Iterator[Row | Problem]:
    source = str(path)
    for line in _lines(path):
        yield line if isinstance(line, Problem) else json_row(source, *line)


def _lines(path: Path) -> Iterator[Problem | tuple[int, str, bool]]:
    """Lines that are not blank, with number, text and whether a newline ends them.

    Only a newline ends a line, whatever else Unicode has.
    """
    source = str(path)
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LONGEST_LINE):
            number += 1
            if number == 1:
                yield from (known := list(_first_bytes(source, line)))
                if any(problem.ends for problem in known):
                    return
            ended = line.endswith(b"\n")
            if len(line) == LONGEST_LINE and not ended:
                _skip_line(file)
                text = f"is longer than {LONGEST_LINE // 2**20} MiB; write one row on each line"
                yield Problem(source, number, "line_too_long", text)
                continue
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                what = f"is not UTF-8 (byte {error.start + 1} is 0x{line[error.start]:02x})"
                yield Problem(source, number, "not_utf8", f"{what}; save the file in that encoding")
                continue
            if text and not text.isspace():
                yield number, text, ended


def _first_bytes(source: str, line: bytes) -> Iterator[Problem]:
    for magic, what in MAGIC.items():
        if line.startswith(magic):
            yield Problem(source, 1, "wrong_file", what, ends=True)
            return
    if line.startswith(b"\xef\xbb\xbf"):
        yield Problem(source, 1, "bom", "begins with a byte-order mark; save the file as UTF-8 without one")


def _skip_line(file: BinaryIO) -> None:
    while (rest := file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
        pass
