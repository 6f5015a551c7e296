"""Data of any format that is known as JSONL or Parquet in our own columns, a row in memory at a time."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from holdfast.data.check import COLUMNS, DataKind, kind_of, parse_as
from holdfast.data.formats import RatedAnswer, read_all
from holdfast.data.left_out import RowsLeftOut
from holdfast.data.recognition import Source
from holdfast.data.rows import Row, refuse_existing, write_rows
from holdfast.errors import HoldfastError
from holdfast.models.prompt import Message, Prompt
from holdfast.preferences.comparison import Demonstration, PreferencePair
from holdfast.preferences.encoding import prompt_json

Item = Prompt | Demonstration | PreferencePair | RatedAnswer


@dataclass(frozen=True)
class Conversion:
    """What came of a conversion; `left_out_file` is where the rows are that could not be used."""

    read_as: str
    kind: DataKind
    written: int
    left_out: int
    left_out_file: Path | None


def convert(
    source: str | Path,
    out: Path,
    kind: DataKind | None = None,
    format_name: str | None = None,
    skip_share: float = 0.0,
) -> Conversion:
    """Write a source in our own columns. The file appears whole or not at all, and never replaces one.

    Rows that cannot be used stop it, unless they are within `skip_share`; then they go to a file beside it.
    """
    rows = Source(source, None if kind in ("preferences", "demonstrations") else "prompt", format_name)
    left_out_file = out.with_name(f"{out.stem}.left-out.jsonl")
    refuse_existing(out)
    refuse_existing(left_out_file)
    with tempfile.TemporaryFile("w+") as kept:
        left = RowsLeftOut(skip_share, lambda line: kept.write(f"{line}\n"))
        table = _Table(rows, kind, left)
        items = iter(table)
        first = next(items, None)
        if first is None:
            raise HoldfastError(f"There is nothing to write to {out}: none of the rows of {source} can be used.")

        def keep_left_out() -> None:
            kept.seek(0)
            if left.number:
                write_rows(left_out_file, (json.loads(line) for line in kept))

        write_rows(out, chain([first], items), keep_left_out)
    assert rows.recognised is not None
    assert table.kind is not None
    place = left_out_file if left.number else None
    return Conversion(rows.recognised.words, table.kind, table.written, left.number, place)


class _Table:
    """The rows to write; what they are is settled by the first."""

    def __init__(self, rows: Source, kind: DataKind | None, left: RowsLeftOut) -> None:
        self._rows, self.kind, self._left = rows, kind, left
        self.written = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for columns in read_all(self._rows, self._columns, left_out=self._left):
            self.written += 1
            yield columns

    def _columns(self, row: Row) -> dict[str, Any]:
        self.kind = self.kind or kind_of(row)
        columns = _columns(parse_as(self.kind, row))
        more = COLUMNS["preferences"] if self.kind == "preferences" else ()
        return columns | {name: row.get(name) for name in more if name not in columns and row.get(name) is not None}


def _columns(item: Item) -> dict[str, Any]:
    """A row in our own columns; the answers to a conversation are messages too."""
    if isinstance(item, PreferencePair):
        return {"prompt": prompt_json(item.prompt)} | {
            side: _answer(item.prompt, text) for side, text in (("chosen", item.chosen), ("rejected", item.rejected))
        }
    if isinstance(item, Demonstration):
        return {"prompt": prompt_json(item.prompt), "completion": _answer(item.prompt, item.response)}
    if isinstance(item, RatedAnswer):
        return {"prompt": prompt_json(item.prompt), "completion": _answer(item.prompt, item.text), "label": item.good}
    return {"prompt": prompt_json(item)}


def _answer(prompt: Prompt, text: str) -> object:
    return text if isinstance(prompt, str) else prompt_json((Message("assistant", text),))
