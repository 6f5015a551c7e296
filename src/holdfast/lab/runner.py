"""Many trials, side by side, one core each. One that fails is told of and does not end the others."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Protocol

from holdfast.errors import HoldfastError, Interrupted, first_line
from holdfast.lab.trial import Job, Trial, ended, run_trial
from holdfast.report.words import duration

KILLED = "its process was killed, perhaps for lack of memory; the same command goes on with it."


@dataclass(frozen=True)
class TrialOutcome:
    """A trial that has ended, or the sentence why it has not."""

    job: Job
    trial: Trial | None
    failure: str = ""


class Desk(Protocol):
    """Where one trial after another is done; `close` ends the one that is under way."""

    def do(self, job: Job) -> TrialOutcome: ...

    def close(self) -> None: ...


class OwnProcess:
    """A desk that is a process of its own on this machine; one that has died is replaced by the next."""

    def __init__(self) -> None:
        self._process: ProcessPoolExecutor | None = None

    def do(self, job: Job) -> TrialOutcome:
        if self._process is None:
            self._process = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=leave_with_parent)
        future = self._process.submit(run_trial, job)
        error = future.exception()
        if error is None:
            return TrialOutcome(job, future.result())
        if isinstance(error, BrokenProcessPool):
            self.close()
            return TrialOutcome(job, None, KILLED)
        return TrialOutcome(job, None, failure_of(error))

    def close(self) -> None:
        if self._process is not None:
            self._process.shutdown(wait=False, cancel_futures=True)
            self._process = None


def leave_with_parent() -> None:
    """End this process when the one that started it has died: nobody waits for its trial, which would hold a core."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def failure_of(error: BaseException) -> str:
    """An error as a sentence; one that was not written for the user has the name of its kind before it."""
    sentence = first_line(error)
    return sentence if isinstance(error, HoldfastError) else f"{type(error).__name__}: {sentence}"


def attempt_trials(
    jobs: Sequence[Job],
    workers: int = 2,
    say: Callable[[str], None] = print,
    desk: Callable[[], Desk] = OwnProcess,
) -> list[TrialOutcome]:
    """All jobs, in their order, at as many desks as there are workers; `say` gets a line as each one ends."""
    # Before the processes start: each has one core, and a library that took two would be in the other's way.
    os.environ["OMP_NUM_THREADS"] = "1"
    desks: SimpleQueue[Desk] = SimpleQueue()
    made = [desk() for _ in range(workers)]
    for one in made:
        desks.put(one)
    clock, stop = Clock(len(jobs), workers), Event()

    def work(job: Job) -> TrialOutcome:
        if stop.is_set():
            return TrialOutcome(job, None, "not begun.")
        one, fresh = desks.get(), not ended(job.path)
        try:
            outcome = one.do(job) if fresh else read_ended(job)
        finally:
            desks.put(one)
        if not stop.is_set():
            say(clock.line(outcome, fresh))
        return outcome

    outcomes: dict[int, TrialOutcome] = {}
    with ThreadPoolExecutor(workers) as threads:
        futures = {threads.submit(work, job): i for i, job in enumerate(jobs)}
        try:
            for future in as_completed(futures):
                outcomes[futures[future]] = future.result()
        except KeyboardInterrupt:
            stop.set()
            for future in futures:
                future.cancel()
            raise Interrupted("The same command goes on from here.") from None
        finally:
            for one in made:
                one.close()
    return [outcomes[i] for i in range(len(jobs))]


def read_ended(job: Job) -> TrialOutcome:
    """A trial that is on disk needs no process."""
    try:
        return TrialOutcome(job, run_trial(job))
    except HoldfastError as error:
        return TrialOutcome(job, None, str(error))


@dataclass
class Clock:
    """How far the trials are, and how long the rest will take at the pace so far."""

    jobs: int
    workers: int
    done: int = 0
    worked: int = 0
    started: float = field(default_factory=time.monotonic)
    lock: Lock = field(default_factory=Lock)

    def line(self, outcome: TrialOutcome, fresh: bool) -> str:
        """One line about a trial that has ended; `fresh` where it was not read from disk."""
        with self.lock:
            self.done, self.worked = self.done + 1, self.worked + fresh
            left = self.jobs - self.done
            pace = (time.monotonic() - self.started) / max(self.worked, 1)
            rest = f"; {duration(left * pace)} left" if left and self.worked else ""
            head = f"[{self.done}/{self.jobs}] {outcome.job.name or outcome.job.path.name}"
        return f"{head}: {summary(outcome)}{rest}"


def summary(outcome: TrialOutcome) -> str:
    """A trial in a few words."""
    t = outcome.trial
    if t is None:
        return f"FAILED: {outcome.failure}"
    words = f"gold {t.heldout[0]:+.2f} -> {t.delivered:+.2f}" if t.heldout else "done"
    if t.heldout and t.peak > t.delivered:
        words += f" (best {t.peak:+.2f})"
    if t.proxy:
        words += f", proxy {t.proxy[0]:+.2f} -> {t.proxy[-1]:+.2f}, KL {t.kl[-1]:.1f}"
    if t.first_alarm is not None:
        words += f", {t.verdicts[t.first_alarm]} called in round {t.first_alarm}"
    if t.rollbacks:
        words += f", {len(t.rollbacks)} rollback{'s' if len(t.rollbacks) > 1 else ''}"
    return words + (", stopped" if t.stopped else "")
