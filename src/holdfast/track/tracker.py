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

from holdfast.errors import HoldfastError
from holdfast.events import event_kind
from holdfast.track.metrics import metric
from holdfast.track.sinks import JsonlFile, Sink

PROBES_FILE = "probes.jsonl"


class Tracker:
    """Writes the rows of a run to its directory, and its metrics to the sinks as well."""

    def __init__(self, run_dir: Path, sinks: Sequence[Sink] = ()) -> None:
        self._metrics = JsonlFile(run_dir / "metrics.jsonl")
        self._events = JsonlFile(run_dir / "events.jsonl")
        self._samples = JsonlFile(run_dir / "samples.jsonl")
        self._timings = JsonlFile(run_dir / "timings.jsonl")
        self._probes = JsonlFile(run_dir / PROBES_FILE)
        self._rewound = {
            "metrics": self._metrics, "events": self._events, "samples": self._samples, "probes": self._probes,
        }  # fmt: skip
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

    def state(self) -> dict[str, int]:
        """Sizes of the files for a checkpoint to store; every row before them is on the disk."""
        for file in self._rewound.values():
            # Otherwise a power cut could keep the checkpoint and lose rows that it counts on.
            file.sync()
        return {name: file.size() for name, file in self._rewound.items()}

    def restore(self, offsets: Mapping[str, int]) -> None:
        """Take metrics, events, samples and probes back to where they were at a checkpoint; all of them or none."""
        if offsets.keys() != self._rewound.keys():
            raise HoldfastError(
                f"The checkpoint holds places in {', '.join(sorted(offsets)) or 'no file'}, but "
                f"{', '.join(sorted(self._rewound))} are needed; resume from another checkpoint."
            )
        for name, file in self._rewound.items():
            file.check_holds(offsets[name])
        for name, file in self._rewound.items():
            file.truncate(offsets[name])

    def close(self) -> None:
        """Close the files and the sinks."""
        for file in (*self._rewound.values(), self._timings):
            file.close()
        for sink in self._sinks:
            sink.close()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
