"""What a run writes down about itself.

    metrics.jsonl   numbers of each step, by registered name; no clock, so equal seeds give equal bytes
    events.jsonl    what happened and what was done about it, with the time
    samples.jsonl   answers to the fixed prompts
    probes.jsonl    how likely the model finds a fixed set of answers, as it learns
    timings.jsonl   seconds per phase; it only grows, since time spent on a step done again was spent

A checkpoint stores `state()`; a run resumed from it calls `restore` with it and writes the rest again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.events import event_kind
from holdfast.track.metrics import metric
from holdfast.track.sinks import JsonlFile, Sink, mark_logs, rewind_logs

METRICS_FILE = "metrics.jsonl"
SAMPLES_FILE = "samples.jsonl"
PROBES_FILE = "probes.jsonl"


class Tracker:
    """Writes the rows of a run to its directory, and its metrics to the sinks as well."""

    def __init__(self, run_dir: Path, sinks: Sequence[Sink] = ()) -> None:
        self._metrics = JsonlFile(run_dir / METRICS_FILE)
        self._events = JsonlFile(run_dir / "events.jsonl")
        self._samples = JsonlFile(run_dir / SAMPLES_FILE)
        self._timings = JsonlFile(run_dir / "timings.jsonl")
        self._probes = JsonlFile(run_dir / PROBES_FILE)
        self._rewound = (self._metrics, self._events, self._samples, self._probes)
        self._sinks = tuple(sinks)

    def metrics(self, step: int, round: int, values: Mapping[str, float]) -> None:
        """Write a step's numbers; an unknown name is refused, a value that is not finite becomes null."""
        numbers: dict[str, int | float] = {
            metric(name).name: value if type(value) is int else float(value) for name, value in values.items()
        }
        self._metrics.append({"step": step, "round": round, **numbers})
        finite = {name: value for name, value in numbers.items() if math.isfinite(value)}
        for sink in self._sinks:
            sink.log(step, round, finite)

    def event(self, step: int, round: int, kind: str, **fields: object) -> None:
        """Write that something happened, with its evidence; an unknown kind, or wrong fields, are refused."""
        event_kind(kind).check(fields)
        self._events.append({"step": step, "round": round, "event": kind, "time": _now(), **fields})

    def sample(self, step: int, round: int, **fields: object) -> None:
        """Write an answer to one of the fixed prompts."""
        self._samples.append({"step": step, "round": round, **fields})

    def probe(self, row: Mapping[str, object]) -> None:
        """Write what a probe has read."""
        self._probes.append(row)

    @property
    def probes_path(self) -> Path:
        """Where probes are written."""
        return self._probes.path

    def timing(self, step: int, round: int, **seconds: float) -> None:
        """Write how long the phases of a step took."""
        if "time" in seconds:
            raise ValueError("The field name 'time' is taken; call it something else.")
        self._timings.append({"step": step, "round": round, "time": _now(), **seconds})

    def state(self) -> dict[str, Any]:
        """Size and SHA-256 of the files for a checkpoint to store, by name; every row before them is on the disk."""
        places: dict[str, Any] = {}
        # On the disk, since a power cut could otherwise keep the checkpoint and lose rows that it counts on.
        mark_logs(self._rewound, places)
        return places

    def restore(self, places: Mapping[str, Any]) -> None:
        """Take metrics, events, samples and probes back to where they were at a checkpoint; all of them or none.

        A file that is no longer what the checkpoint was saved with is refused.
        """
        needed = {file.path.name for file in self._rewound}
        if places.keys() != needed:
            raise HoldfastError(
                f"The checkpoint holds places in {', '.join(sorted(places)) or 'no file'}, but "
                f"{', '.join(sorted(needed))} are needed; resume from another checkpoint."
            )
        rewind_logs(self._rewound, places)

    def forget(self, *names: str) -> None:
        """Empty these files: what they tell of will be done again from the start."""
        rewind_logs([file for file in self._rewound if file.path.name in names], {})

    def close(self) -> None:
        """Close the files and the sinks."""
        for file in (*self._rewound, self._timings):
            file.close()
        for sink in self._sinks:
            sink.close()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
