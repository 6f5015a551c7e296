"""Where a run stands, and what it writes down about itself."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from holdfast.events import event_line
from holdfast.track.progress import Progress
from holdfast.track.tracker import Tracker


@dataclass
class Position:
    """Where the loop is. `round` is the one being worked on, from 1; `step` counts over the whole run.

    `audit_due` says that the round's steps are done and people are being asked about them. `tokens` counts what was
    sampled from the first round on, for whatever; observers and probes apart. Rounds and steps only count forward;
    `freed` are those rounds that an owner's rollback has undone, which may be done again.
    """

    round: int = 1
    step: int = 0
    step_in_round: int = 0
    skipped: int = 0
    skipped_in_a_row: int = 0
    audit_due: bool = False
    tokens: int = 0
    freed: int = 0

    @property
    def of_plan(self) -> int:
        """Which round of the run's number of rounds this is: those that an owner has undone do not count."""
        return self.round - self.freed

    def free(self, then: Mapping[str, Any]) -> None:
        """The run was taken back to where it stood at `then`: as many rounds of its number are left as there were."""
        self.freed = self.round - (int(then["round"]) - int(then["freed"]))

    @property
    def checkpoint_name(self) -> str:
        """What a checkpoint is called that is made here, within a round or after one."""
        within = f"round-{self.round:04d}-step-{self.step_in_round:04d}"
        return within if self.step_in_round else f"round-{self.round - 1:04d}"

    @property
    def round_shown(self) -> int:
        """The round whose result is being shown: 0 before the first step."""
        return self.round if self.step else 0

    def next_round(self) -> None:
        self.round, self.step_in_round, self.audit_due = self.round + 1, 0, False

    def state(self) -> dict[str, Any]:
        return asdict(self)

    def restore(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)


@dataclass
class Journal:
    """Events, metrics and timings of a run, each at the run's position; events are also said to whoever watches."""

    position: Position
    tracker: Tracker
    progress: Progress
    timings: dict[str, float] = field(default_factory=dict)

    def event(self, kind: str, **fields: object) -> None:
        """Write that something happened, and say so where somebody is watching."""
        self.tracker.event(self.position.step, self.position.round, kind, **fields)
        if line := event_line(kind, self.position.round, fields):
            self.progress.say(line)

    def metrics(self, values: Mapping[str, float]) -> None:
        """A step's row of metrics."""
        self.tracker.metrics(self.position.step, self.position.round, values)

    def end_step(self, **shown: float) -> None:
        """A step's row of timings, and one move of the progress bar."""
        self.tracker.timing(self.position.step, self.position.round, **self.timings)
        self.timings = {}
        self.progress.advance(**shown)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add to the time that a phase takes."""
        start = time.perf_counter()
        yield
        self.timings[phase] = self.timings.get(phase, 0.0) + time.perf_counter() - start
