"""Runs as processes of their own that die, or are signalled, at a chosen point.

The points are put in from here, by wrapping a named function in the dying process; the program has no hooks.
"""

from __future__ import annotations

import functools
import importlib
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

import forked
import small_run
import tally
from holdfast.checkpoint.pace import SavePace
from holdfast.run.learner import Learner

TIMEOUT_SECONDS = 240.0


@dataclass(frozen=True)
class Point:
    """At the `call`-th call of `module:name` (of those that mention `about`) the process signals itself."""

    where: str
    call: int = 1
    when: Literal["before", "after"] = "before"
    about: str = ""
    number: int = signal.SIGKILL

    def put_in(self) -> None:
        module_name, _, path = self.where.partition(":")
        owner: Any = importlib.import_module(module_name)
        *holders, name = path.split(".")
        for holder in holders:
            owner = getattr(owner, holder)
        setattr(owner, name, self._wrapped(getattr(owner, name)))

    def _wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        calls = 0

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            counts = not self.about or any(self.about in str(arg) for arg in args[-2:])
            calls += counts
            now = counts and calls == self.call
            if now and self.when == "before":
                os.kill(os.getpid(), self.number)
            result = function(*args, **kwargs)
            if now and self.when == "after":
                os.kill(os.getpid(), self.number)
            return result

        return wrapper


@dataclass(frozen=True)
class SlowSteps:
    """To the clock by which saves are paced, every step of the policy takes this many seconds."""

    seconds: float = 100.0

    def put_in(self) -> None:
        spent, step = 0.0, Learner.step

        def slow(learner: Learner) -> str:
            nonlocal spent
            spent += self.seconds
            return step(learner)

        clock = functools.partialmethod(SavePace.__init__, clock=lambda: time.monotonic() + spent)
        Learner.step, SavePace.__init__ = slow, clock  # type: ignore[assignment,method-assign]


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code (negative for a signal) and all that it printed."""

    code: int
    printed: str


@dataclass(frozen=True)
class ClockJump:
    """The clock of the process goes wrong by so many seconds, as after a bad battery or a careless administrator."""

    seconds: float

    def put_in(self) -> None:
        right, jump = time.time, self.seconds
        time.time = lambda: right() + jump


@dataclass(frozen=True)
class Claims:
    """The ensemble of the process claims so often that the policy's answer is preferred."""

    claim: float

    def put_in(self) -> None:
        small_run.claiming(pytest.MonkeyPatch(), self.claim)


# What is done to a process before it begins.
Change = Point | SlowSteps | ClockJump | Claims


def command(argv: list[str], output: Path, *points: Change, dies_after: float | None = None) -> Ended:
    """`holdfast ARGV` in a process of its own, which may be killed from outside after so many seconds."""
    process = forked.start(argv, output, [point.put_in for point in points])
    process.join(TIMEOUT_SECONDS if dies_after is None else dies_after)
    if process.exitcode is None and dies_after is not None:
        process.kill()
        process.join()
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError(f"holdfast {argv[0]} did not end: {output.read_text()}")
    _count(process.exitcode, points)
    return Ended(process.exitcode, output.read_text())


def _count(code: int, points: tuple[Change, ...]) -> None:
    tally.count("kills", code == -signal.SIGKILL)
    tally.count("other signals", sum(isinstance(point, Point) and point.number != signal.SIGKILL for point in points))
    tally.count("clock jumps", sum(isinstance(point, ClockJump) for point in points))


def several(argv: list[str], output: Path, *points: Point, rank: int = 1, count: int = 2) -> list[Ended]:
    """`holdfast ARGV` in processes that work together, told what torchrun tells its own; `points` are for one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    started = []
    for n in range(count):
        told = {name: str(value) for name, value in (shared | {"RANK": n, "LOCAL_RANK": n}).items()}
        place = output.with_suffix(f".{n}")
        before = [point.put_in for point in points] if n == rank else []
        started.append((forked.start(argv, place, before, told), place))
    # The first is the one that decides; when it has ended, nobody has anything left to wait for, and one that was
    # stopped does not end at all.
    patience = TIMEOUT_SECONDS
    for process, _ in started:
        process.join(patience)
        patience = 0.0 if any(point.number == signal.SIGSTOP for point in points) else 30.0
    late = [process for process, _ in started if process.exitcode is None]
    for process in late:
        process.kill()
        process.join()
    assert started[0][0] not in late, f"holdfast {argv[0]} did not end: {started[0][1].read_text()}"
    return [Ended(process.exitcode or 0, place.read_text()) for process, place in started]


def run_until(tmp: Path, end: Point, *points: Change, **changes: str) -> Path:
    """Start a small run that meets its end; returns its directory."""
    ended = command(small_run.run_arguments(tmp / "runs", **changes), tmp / "run.txt", end, *points)
    assert ended.code == -end.number, ended
    return tmp / "runs" / small_run.NAME


def resume(run: Path, *points: Change, code: int = 0) -> Ended:
    ended = command(["resume", str(run)], run.parent / "resume.txt", *points)
    assert ended.code == code, ended
    return ended
