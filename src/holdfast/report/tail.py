"""A run directory read again and again while the run writes it: each time only what is new.

A resumed run cuts its files back and writes on. Then what was read last is no longer where it was, and all of it is
read anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from holdfast.parallel.garbage import collection_paused
from holdfast.report.data import (
    EventRow,
    GoldRow,
    JsonRow,
    RunData,
    SampleRow,
    TimingRow,
    event_row,
    gold_row,
    metric_row,
    read_row,
    run_data,
    sample_row,
    timing_row,
)
from holdfast.report.metrics import MetricTable

Row = TypeVar("Row")
REMEMBERED = 256  # bytes before the end of what was read, by which a file that was cut is told


@dataclass
class Tail(Generic[Row]):
    """A .jsonl file, and how far it has been read."""

    path: Path
    read: Callable[[JsonRow], Row]
    offset: int = 0
    before: bytes = b""
    rows: list[Row] = field(default_factory=list)

    def size(self) -> int:
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def was_cut(self) -> bool:
        """Whether what was read last is not there any more."""
        if not self.offset:
            return False
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset - len(self.before))
                return file.read(len(self.before)) != self.before
        except OSError:
            return True

    def more(self) -> list[Row]:
        """The rows that are new; half a line waits for its other half."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                text = file.read()
        except OSError:
            return []
        whole = text.rfind(b"\n") + 1
        if not whole:
            return []
        self.offset += whole
        self.before = (self.before + text[:whole])[-REMEMBERED:]
        lines = text[:whole].decode("utf-8", errors="replace").split("\n")
        rows = [row for line in lines if line.strip() and (row := read_row(line, self.read)) is not None]
        self.rows += rows
        return rows


class RunFollower:
    """Keeps a run's data in memory and adds to it what the run writes."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._begin()

    def _begin(self) -> None:
        self._metrics = MetricTable()
        self._metric_tail = Tail(self.run_dir / "metrics.jsonl", metric_row)
        self._events: Tail[EventRow] = Tail(self.run_dir / "events.jsonl", event_row)
        self._gold: Tail[GoldRow] = Tail(self.run_dir / "gold.jsonl", gold_row)
        self._samples: Tail[SampleRow] = Tail(self.run_dir / "samples.jsonl", sample_row)
        self._timings: Tail[TimingRow] = Tail(self.run_dir / "timings.jsonl", timing_row)

    def sizes(self) -> tuple[int, ...]:
        """What changes when there is something new."""
        tails = (self._metric_tail, self._events, self._gold, self._samples, self._timings)
        return tuple(tail.size() for tail in tails)

    @collection_paused()
    def read(self) -> RunData:
        """The run as it is now."""
        if any(t.was_cut() for t in (self._metric_tail, self._events, self._gold, self._samples)):
            self._begin()
        for step, number, values in self._metric_tail.more():
            self._metrics.add(step, number, values)
        self._metric_tail.rows.clear()
        for tail in (self._events, self._gold, self._samples, self._timings):
            tail.more()
        metrics = self._metrics.copy()  # whoever looks at it must not see it grow
        events, gold = tuple(self._events.rows), tuple(self._gold.rows)
        return run_data(self.run_dir, metrics, events, gold, self._samples.rows, self._timings.rows, (), [])
