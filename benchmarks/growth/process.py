"""One measurement in a process of its own, so that its peak memory is its own too.

The parent calls `measure("module:function", directory, n)`. The function is a context manager that prepares what it
needs and yields the work to be timed; a work that times itself, or knows another figure, returns it by name.
"""

from __future__ import annotations

import importlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.record import ROOT
from holdfast.errors import HoldfastError
from holdfast.track.memory import memory, peak_memory

Figures = dict[str, float]
Work = Callable[[], Mapping[str, float] | object]
Preparation = Iterator[Work]

LONG_ENOUGH = 1.0  # seconds of repeats after which a median is good enough
MOST_REPEATS = 9


@dataclass(frozen=True)
class Once:
    """Work that is not the same when it is done again, so that it is done once."""

    work: Work

    def __call__(self) -> object:
        return self.work()


class Stopwatch:
    """Wall-clock and processor time of the stretches it is used for, added up."""

    def __init__(self) -> None:
        self.seconds, self.processor = 0.0, 0.0

    def __enter__(self) -> Self:
        self._start = time.perf_counter(), time.process_time()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds += time.perf_counter() - self._start[0]
        self.processor += time.process_time() - self._start[1]

    def figures(self) -> Figures:
        return {"seconds": self.seconds, "processor": self.processor}


def measure(function: str, directory: Path, n: int) -> Figures:
    """Run the measurement in a fresh interpreter: seconds, processor seconds, memory above the start, and its own."""
    command = [sys.executable, "-m", "benchmarks.growth.process", function, str(directory), str(n)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise HoldfastError(f"Measuring {function} at {n} failed: {reason}")
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def figures_of(prepare: AbstractContextManager[Work]) -> Figures:
    """The median of a few calls, or of one call if that is long; memory is the peak of them all."""
    with prepare as work:
        before = memory()
        rows: list[Figures] = []
        repeats = 1 if isinstance(work, Once) else MOST_REPEATS
        while not rows or (sum(row["seconds"] for row in rows) < LONG_ENOUGH and len(rows) < repeats):
            with Stopwatch() as watch:
                result = work()
            rows.append(watch.figures() | (dict(result) if isinstance(result, Mapping) else {}))
            result = None  # what one call made does not count in the next one's memory
        medians = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
        return {**medians, "memory": float(max(0, peak_memory() - before))}


def main(argv: list[str]) -> None:
    function, directory, n = argv
    module, _, name = function.partition(":")
    prepare: Any = getattr(importlib.import_module(module), name)
    print(json.dumps(figures_of(prepare(Path(directory), int(n)))))


if __name__ == "__main__":
    # Under its own name, which is the one that the measurements import their classes from.
    importlib.import_module("benchmarks.growth.process").main(sys.argv[1:])
