"""Rows that cannot be used and may be left out, as long as they are few; each is kept with its place and the reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.data.problems import Problem
from holdfast.errors import HoldfastError
from holdfast.text import counted

# The share that may be lost where somebody says that some may, and not how many.
USUAL_SHARE = 0.01
MOST_SHARE = 0.5


def within(lost: int, rows: int, share: float) -> bool:
    """Whether so many lost rows of all may be left out."""
    return lost <= share * rows


class RowsLeftOut:
    """What is left out of one source after the other; `keep` takes the JSON text of each row that is."""

    def __init__(self, share: float, keep: Callable[[str], Any] | None = None) -> None:
        self.share = share
        self.lines: list[str] = []
        self.notes: list[str] = []
        self.number = 0
        self._keep = keep or self.lines.append

    def add(self, problem: Problem) -> bool:
        """Leave a row out if that mends the problem and rows may be lost at all; whether it was."""
        if not (self.share and problem.of_a_row):
            return False
        record = {"source": problem.source, "line": problem.line, "kind": problem.kind, "reason": problem.text}
        self.number += 1
        self._keep(json.dumps({**record, "row": problem.row}, default=str))
        return True

    def settle(self, source: str | Path, first: Problem | None, lost: int, rows: int) -> None:
        """At the end of a source: refuse it if more was lost than may be, or else note how much."""
        if first is None:
            return
        if not within(lost, rows, self.share):
            raise TooManyLost(source, first, lost, rows, self.share)
        self.notes.append(
            f"{lost:,} of {counted(rows, 'row')} of {source} cannot be used and {'is' if lost == 1 else 'are'} left "
            f"out; `holdfast data check {source}` names them."
        )


class TooManyLost(HoldfastError):
    """More rows than the share that may be left out."""

    def __init__(self, source: str | Path, first: Problem, lost: int, rows: int, share: float) -> None:
        more = ", or raise the share" if share < MOST_SHARE else ""
        super().__init__(
            f"{lost:,} of {counted(rows, 'row')} of {source} cannot be used, which is {lost / rows:.1%} where at most "
            f"{share:.1%} may be left out; the first: {first.unit} {first.line}: {first.text}. "
            f"`holdfast data check {source}` lists all; mend them{more}."
        )
        self.problem = first
