"""Requests that come at the same time, scored in one pass.

    submit -> waiting (bounded) -> a few milliseconds' worth, or a full batch -> one pass in a thread -> answers

A request is the unit: it is never divided between passes, so one version answers all of it. While a pass is being
computed the next one's requests come together by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from holdfast.serving.encoding import Asked
from holdfast.serving.scorer import Scored
from holdfast.web.security import Refused

Requests = Sequence[Sequence[Asked]]
# Scores requests; calls back with an outcome for each, and may go on with work that nobody waits for.
Work = Callable[[Requests, Callable[[list[Scored | Refused]], None]], None]

# How much of the measured rate comes from the newest pass.
NEWEST = 0.2


@dataclass(frozen=True)
class Limits:
    """How long requests are waited for, how many answers one pass takes, and how many may wait."""

    wait_ms: float = 5.0
    batch: int = 256
    queue: int = 4096


@dataclass(eq=False)
class Job:
    """A request that waits for its scores."""

    asked: Sequence[Asked]
    done: asyncio.Future[Scored]
    told: bool = False


class Batcher:
    """The queue in front of the ensemble. Everything but the pass itself happens in the event loop's thread."""

    def __init__(self, work: Work, limits: Limits) -> None:
        self._work, self._limits = work, limits
        self._jobs: deque[Job] = deque()
        self._arrived, self._full = asyncio.Event(), asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="reward")
        self._task: asyncio.Task[None] | None = None
        self._rate = 0.0  # answers a second, smoothed
        self.waiting = 0  # answers that are not scored yet
        self.passes = 0

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Finish what has been accepted, then end."""
        while self.waiting:
            await asyncio.sleep(0.01)
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._thread.shutdown()

    async def submit(self, asked: Sequence[Asked]) -> Scored:
        """The scores of a request; refused with 503 where too much is waiting already."""
        if self.waiting and self.waiting + len(asked) > self._limits.queue:
            seconds = self.waiting / self._rate if self._rate else 1.0
            raise Refused(
                503, f"{self.waiting} answers are waiting to be scored; come back in a moment.", math.ceil(seconds)
            )
        job = Job(asked, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        self.waiting += len(asked)
        self._arrived.set()
        if self.waiting >= self._limits.batch:
            self._full.set()
        return await job.done

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            jobs = await self._next()
            started, count = time.perf_counter(), sum(len(job.asked) for job in jobs)

            def told(outcomes: list[Scored | Refused], jobs: list[Job] = jobs) -> None:
                loop.call_soon_threadsafe(self._tell, jobs, outcomes)

            try:
                await loop.run_in_executor(self._thread, self._work, [job.asked for job in jobs], told)
            except Exception as error:  # noqa: BLE001 - nobody may be left waiting, and the next pass has to come
                loop.call_exception_handler({"message": "A pass of the reward service failed.", "exception": error})
                self._tell(
                    jobs, [Refused(500, "The ensemble could not score this; the server's log says why.")] * len(jobs)
                )
            seconds = max(1e-6, time.perf_counter() - started)
            self._rate += (NEWEST if self._rate else 1.0) * (count / seconds - self._rate)
            self.passes += 1

    async def _next(self) -> list[Job]:
        """The requests of the next pass, once there are any."""
        await self._arrived.wait()
        if self.waiting < self._limits.batch and self._limits.wait_ms > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._full.wait(), self._limits.wait_ms / 1000.0)
        jobs: list[Job] = []
        count = 0
        while self._jobs and (not jobs or count + len(self._jobs[0].asked) <= self._limits.batch):
            jobs.append(self._jobs.popleft())
            count += len(jobs[-1].asked)
        self._full.clear()
        if not self._jobs:
            self._arrived.clear()
        elif sum(len(job.asked) for job in self._jobs) >= self._limits.batch:
            self._full.set()
        return jobs

    def _tell(self, jobs: Sequence[Job], outcomes: Sequence[Scored | Refused]) -> None:
        for job, outcome in zip(jobs, outcomes, strict=True):
            if job.told:
                continue
            job.told = True
            self.waiting -= len(job.asked)
            if job.done.cancelled():
                continue  # the client has gone away
            if isinstance(outcome, Refused):
                job.done.set_exception(outcome)
            else:
                job.done.set_result(outcome)
