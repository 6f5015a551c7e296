"""The elements of one JSON array as rows, one in memory at a time however long the array is."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import BinaryIO

from holdfast.data import lines
from holdfast.data.jsonl import DECODER, RepeatedKey, TooDeep, check_row_depth, diagnosis
from holdfast.data.problems import Problem
from holdfast.data.rows import Row

CHUNK = 1 << 16
_SPACE = re.compile(r"\s*")
# An element that is cut off fails within so many characters of the end, or as a text without an end.
_NEAR_THE_END = 16


class _Wrong(Exception):
    """Nothing after this place can be read; kind and sentence."""


class _Text:
    """What has been read of the file and not yet taken."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self.text, self.at, self.ended = "", 0, False
        self._line = 1

    def line(self, at: int) -> int:
        """The line of a place in `text`, as an editor counts."""
        return self._line + self.text.count("\n", 0, at)

    def more(self, size: int) -> None:
        """Read on, and let go of what was taken."""
        self._line += self.text.count("\n", 0, self.at)
        self.text, self.at = self.text[self.at :], 0
        raw = self._file.read(size)
        self.ended = not raw
        try:
            self.text += self._decoder.decode(raw, final=self.ended)
        except UnicodeDecodeError as error:
            line = self.line(len(self.text)) + raw[: error.start].count(b"\n")
            byte = error.object[error.start]
            raise _Wrong(
                "not_utf8", f"is not UTF-8 (0x{byte:02x} in line {line}); save the file in that encoding"
            ) from error

    def next(self) -> str:
        """The next character that is not a space, not yet taken; empty at the end of the file."""
        while True:
            self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]
            if self.at < len(self.text) or self.ended:
                return self.text[self.at : self.at + 1]
            self.more(CHUNK)

    def element(self) -> object:
        """The value that begins here. What is there is doubled until it is whole, so each is read about twice."""
        while True:
            try:
                value, end = DECODER.raw_decode(self.text, self.at)
                if end - self.at > lines.LONGEST_LINE:
                    raise _too_long()
                if end < len(self.text) or self.ended:
                    check_row_depth(value, self.text, self.at, end)
                    self.at = end
                    return value
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated string") or error.pos > len(self.text) - _NEAR_THE_END
                if self.ended or not cut:
                    raise self._wrong(error) from error
            if len(self.text) - self.at > lines.LONGEST_LINE:
                raise _too_long()
            self.more(max(CHUNK, len(self.text) - self.at))

    def _wrong(self, error: json.JSONDecodeError) -> _Wrong:
        here = json.JSONDecodeError(error.msg, self.text[self.at :], error.pos - self.at)
        kind, what = diagnosis(here.doc, here, ended=False)
        place = f"{error.msg}, line {self.line(error.pos)}"
        return _Wrong(kind, f"is not JSON ({place}){what.replace('the line', 'it')}")


def _too_long() -> _Wrong:
    size = lines.LONGEST_LINE // 2**20
    return _Wrong("line_too_long", f"is longer than {size} MiB; write one row on each line of a .jsonl file")


def array_rows(source: str, file: BinaryIO) -> Iterator[Row | Problem]:
    """Rows by their number in the array. Where the JSON itself is broken nothing behind it can be read."""
    text = _Text(file)
    number = 0
    try:
        text.next()
        text.at += 1  # the opening bracket
        if text.next() == "]":
            return
        while True:
            number += 1
            if text.next() in ("", "]"):
                wrong = "the list ends with a comma" if text.next() else "the file ends before its list does"
                raise _Wrong("truncated" if not text.next() else "trailing_comma", f"is missing: {wrong}")
            try:
                value = text.element()
            except RepeatedKey as error:
                name = str(error)[:40]
                raise _Wrong("repeated_key", f"has the column '{name}' twice; keep the one that is meant") from error
            if isinstance(value, dict):
                yield Row(source, number, value, "row")
            else:
                what = "must be a JSON object with named columns"
                yield Problem(source, number, "not_object", what, "row", row=value)
            after = text.next()
            if after == "]":
                break
            if after != ",":
                wrong = f"{after!r} stands after it" if after else "the file ends after it"
                kind = "not_json" if after else "truncated"
                raise _Wrong(
                    kind, f"is not followed by a comma or the end of the list ({wrong}, line {text.line(text.at)})"
                )
            text.at += 1
        text.at += 1
        if rest := text.next():
            where = f"{rest!r} in line {text.line(text.at)}"
            raise _Wrong("two_rows", f"is followed by the end of the list and then by more ({where}); remove one")
    except _Wrong as wrong:
        kind, what = wrong.args
        yield Problem(source, number, kind, what, "row", ends=True)
    except (TooDeep, RecursionError):
        yield Problem(source, number, "not_json", f"{TooDeep.words}; remove it", "row", ends=True)
    except ValueError as error:
        yield Problem(source, number, "not_json", f"is not JSON ({error}); remove it", "row", ends=True)
