"""The lines of a file: bounded, decoded, and numbered as an editor numbers them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from holdfast.data.problems import Problem

# One line is in memory at a time. A file without line breaks, or one that unpacks to terabytes, is not one line.
LONGEST_LINE = 64 * 2**20
# Of a line that cannot be read, so much goes into the file of what is left out.
SHOWN = 2_000

Line = tuple[int, str]


def lines_of(source: str, file: BinaryIO) -> Iterator[Line | Problem]:
    """Number and text of every line, its line break included. Only a newline ends a line, whatever else Unicode has."""
    number = 0
    while line := file.readline(LONGEST_LINE):
        number += 1
        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            _skip_line(file)
            text = f"is longer than {LONGEST_LINE // 2**20} MiB; write one row on each line"
            yield Problem(source, number, "line_too_long", text, row=_shown(line))
            continue
        try:
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            at = error.start + (3 if number == 1 and line.startswith(b"\xef\xbb\xbf") else 0)
            what = f"is not UTF-8 (byte {at + 1} is 0x{line[at]:02x})"
            yield Problem(source, number, "not_utf8", f"{what}; save the file in that encoding", row=_shown(line))


def _shown(line: bytes) -> str:
    return line[:SHOWN].decode("utf-8", "backslashreplace").rstrip("\r\n")


def _skip_line(file: BinaryIO) -> None:
    while (rest := file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
        pass
