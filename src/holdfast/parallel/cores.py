"""Independent pieces of work side by side, each on a core of its own.

A small model gains little from splitting one operation over the cores, and much from doing two things at once: torch
lets go of Python's lock inside its operations. How the work was cut never depends on which piece is done first, and
results come back in the order of the pieces, so that the same cut gives the same bits.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")

_inside = threading.local()


# Where Linux says how much processor time a container may use: "quota period" in microseconds, or "max period".
QUOTA = Path("/sys/fs/cgroup/cpu.max")


def available() -> int:
    """The cores this process may use, a container's quota counted."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    if QUOTA.is_file():
        quota, period = QUOTA.read_text(encoding="utf-8").split()
        if quota != "max":
            allowed = min(allowed, max(1, int(quota) // int(period)))
    # Processes that were started together on one machine share its cores.
    return max(1, allowed // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


# Parameters of glibc's mallopt, and the most that its `int` arguments hold.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
AS_MUCH_AS_THERE_IS = 2**31 - 1


def keep_freed_memory() -> bool:
    """Have the C library keep freed memory for the next tensor instead of giving it back; whether it will.

    A pass over a batch frees and asks for the same memory again and again. Given back to the system, every page of it
    has to be handed out and cleared anew.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return False  # not glibc: its own habits have to do
    # One arena, because others are given back whatever is set here.
    return all(
        mallopt(what, to) == 1
        for what, to in ((M_ARENA_MAX, 1), (M_MMAP_THRESHOLD, 2**30), (M_TRIM_THRESHOLD, AS_MUCH_AS_THERE_IS))
    )


class _Crew:
    """Threads that wait for work. They end with the process, whatever they are at: one may have hung."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        for n in range(size):
            threading.Thread(target=self._serve, name=f"holdfast-{n}", daemon=True).start()

    def submit(self, piece: Callable[[], Result]) -> Future[Result]:
        future: Future[Result] = Future()
        self._work.put((future, piece))
        return future

    def dismiss(self) -> None:
        """Let them go; who has hung never hears of it."""
        for _ in range(self.size):
            self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            future, piece = work
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(piece())
                except BaseException as error:  # noqa: BLE001 - whoever waits for the result is told
                    future.set_exception(error)
            del work, future, piece  # a thread that waits must not keep a batch in memory


class Cores:
    """How many pieces are worked on at once. One per process, like torch's own thread count."""

    def __init__(self) -> None:
        self.workers = 1
        self._crew: _Crew | None = None
        self._lone: _Crew | None = None

    def set_workers(self, workers: int) -> None:
        if workers != self.workers:
            self._dismiss()
        self.workers = workers

    def _dismiss(self) -> None:
        for crew in (self._crew, self._lone):
            if crew is not None:
                crew.dismiss()
        self._crew = self._lone = None

    def forget_threads(self) -> None:
        """Begin without any, in a forked process: it has none of its parent's threads."""
        self._crew = self._lone = None

    @property
    def free(self) -> int:
        """Into how many pieces the caller's work is worth cutting: one for a piece that is being worked on already."""
        return 1 if getattr(_inside, "worker", False) else self.workers

    @property
    def sharers(self) -> int:
        """How many pieces like the caller's share the memory: all that are worked on at once, or the caller's alone."""
        return int(getattr(_inside, "sharers", 1))

    def share(self, pieces: Sequence[Callable[[], Result]]) -> list[Result]:
        """The results of all pieces, in their order; a piece that itself shares does its own work alone."""
        if self.free == 1 or len(pieces) < 2:
            return [piece() for piece in pieces]
        futures = self._side_by_side(pieces)
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def attempt(self, pieces: Sequence[Callable[[], Result]], seconds: float) -> list[Result | Exception | None]:
        """The same, with the error that a piece has met in the place of its result.

        Where for so many seconds no piece comes to its end, those being worked on are given up with a TimeoutError, and
        those that nobody has begun are None.
        """
        if getattr(_inside, "worker", False):
            return [_met(piece) for piece in pieces]  # whoever shares the work around this one waits for it
        tried = [partial(_met, piece) for piece in pieces]
        # As in `share`: one after the other where there is nothing to share, so that a piece may itself share.
        alone = self.workers == 1 or len(pieces) < 2
        futures = self._one_by_one(tried) if alone else self._side_by_side(tried)
        waiting = set(futures)
        while waiting:
            ended, waiting = wait(waiting, seconds, FIRST_COMPLETED)
            if not ended:
                begun = {future for future in waiting if not future.cancel()}
                self._dismiss()
                late = TimeoutError(f"no end in {seconds:g} seconds")
                return [
                    (late if future in begun else None) if future in waiting else future.result() for future in futures
                ]
        return [future.result() for future in futures]

    def _side_by_side(self, pieces: Sequence[Callable[[], Result]]) -> list[Future[Result]]:
        crew = self._crew = self._crew or _Crew(self.workers)
        sharers = min(self.workers, len(pieces))

        def run(piece: Callable[[], Result]) -> Result:
            _inside.worker, _inside.sharers = True, sharers
            return piece()

        return [crew.submit(_as_here(partial(run, piece))) for piece in pieces]

    def _one_by_one(self, pieces: Sequence[Callable[[], Result]]) -> list[Future[Result]]:
        lone = self._lone = self._lone or _Crew(1)
        return [lone.submit(_as_here(piece)) for piece in pieces]


def _as_here(piece: Callable[[], Result]) -> Callable[[], Result]:
    """The piece as it would be done in the caller's thread."""
    learns = torch.is_grad_enabled()

    def run() -> Result:
        torch.get_num_threads()  # A new thread takes torch's number of threads over when it is first asked.
        # Whether gradients are kept is each thread's own affair, so it is handed on.
        with torch.set_grad_enabled(learns):
            return piece()

    return run


def _met(piece: Callable[[], Result]) -> Result | Exception:
    try:
        return piece()
    except Exception as error:  # noqa: BLE001 - whoever asked decides what becomes of it
        return error


CORES = Cores()
os.register_at_fork(after_in_child=CORES.forget_threads)
