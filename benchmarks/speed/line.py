"""The benchmark's end of the line to a driver: starts it, asks for iterations, and says what went wrong."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.record import ROOT
from holdfast.errors import HoldfastError

PATIENCE = 30.0


@dataclass(frozen=True)
class Report:
    """One iteration as its driver saw it, by the clock and in CPU time of all its threads.

    `lengths` are (prompt tokens, response tokens) of each sample.
    """

    seconds: float
    cpu_seconds: float
    phases: Mapping[str, float]
    cpu_phases: Mapping[str, float]
    lengths: Sequence[tuple[int, int]]
    peak_memory: int

    @property
    def samples(self) -> int:
        return len(self.lengths)

    @property
    def response_tokens(self) -> int:
        return sum(response for _, response in self.lengths)


@dataclass
class Driver:
    """A driver process. `reports` are its iterations so far; leaving the context ends it."""

    name: str
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    reports: list[Report] = field(default_factory=list)

    def __enter__(self) -> Driver:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT,
                env=self.environment,
            )  # fmt: skip
        try:
            self.facts = self._answer("ready")
        except BaseException:
            self._end(wanted=False)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(wanted=kind is None)

    def _end(self, wanted: bool) -> None:
        """Ask it to stop, or stop it; a process that does neither in time is killed."""
        if self._process.poll() is None:
            if wanted:
                self._say("stop")
            else:
                self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            # What was still to be said to a process that has died cannot be delivered.
            with suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()

    def go(self) -> Report:
        """One iteration."""
        self._say("go")
        answer = self._answer("done")
        lengths = [(int(prompt), int(response)) for prompt, response in answer["lengths"]]
        report = Report(
            float(answer["seconds"]),
            float(answer["cpu_seconds"]),
            dict(answer["phases"]),
            dict(answer["cpu_phases"]),
            lengths,
            int(answer["peak_memory"]),
        )
        self.reports.append(report)
        return report

    def use_threads(self, threads: int) -> None:
        self._say(f"threads {threads}")
        self._answer("done")

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(word + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._failed() from error

    def _answer(self, key: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        try:
            answer = json.loads(line)[key]
        except (ValueError, KeyError, TypeError) as error:
            raise self._failed() from error
        assert isinstance(answer, dict)
        return answer

    def _failed(self) -> HoldfastError:
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        reason = lines[-1].rstrip(".") if lines else "it said nothing"
        with suppress(subprocess.TimeoutExpired):
            if (code := self._process.wait(PATIENCE)) < 0:
                reason = f"something killed it ({signal.Signals(-code).name}), for want of memory perhaps"
        return HoldfastError(f"{self.name} stopped: {reason}; all that it said is in {self.log}.")
