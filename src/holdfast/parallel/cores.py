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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

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


class Cores:
    """How many pieces are worked on at once. One per process, like torch's own thread count."""

    def __init__(self) -> None:
        self.workers = 1
        self._pool: ThreadPoolExecutor | None = None

    def set_workers(self, workers: int) -> None:
        if workers != self.workers and self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        self.workers = workers

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
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.workers, thread_name_prefix="holdfast")
        learns = torch.is_grad_enabled()

        def run(piece: Callable[[], Result]) -> Result:
            _inside.worker, _inside.sharers = True, min(self.workers, len(pieces))
            torch.get_num_threads()  # A new thread takes torch's number of threads over when it is first asked.
            # Whether gradients are kept is each thread's own affair, so it is handed on.
            with torch.set_grad_enabled(learns):
                return piece()

        return list(self._pool.map(run, pieces))


CORES = Cores()
