"""Processes that hold somebody's reward function, of which any may hang, crash or eat memory without harm.

    questions -> a worker that is free, or one more where they have to wait -> outcomes

One that is late or has ended is killed with all that it has started, the answer that it was at is left unscored, and
another takes its place. A worker of an asynchronous function has several questions at once; where it ends, nobody knows
which of them it was, so each is asked again by itself.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import weakref
from collections import deque
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from holdfast.errors import HoldfastError
from holdfast.remote.event_loop import event_loop
from holdfast.reward.outcome import OneScore, Unscored
from holdfast.reward.sources.process import Lost, Nursery, Taken, Worker, start_worker

T = TypeVar("T")

# A question that has waited so long gets one more worker.
PATIENCE_SECONDS = 0.02
# Tries of a question that failed in passing, and what the random wait before the n-th further one is drawn from.
TRIES = 3
FIRST_WAIT_SECONDS = 0.5
# One more worker has to fit so many times into the memory that is free.
ROOM = 4
_jitter = random.SystemRandom()  # how long somebody waits changes no score

Outcomes = list[OneScore | Unscored]


@dataclass(frozen=True)
class Allowance:
    """How long one question may take, and how many are under way at once."""

    seconds: float
    parallel: int


class Workers:
    """The processes of one function. Any thread may ask; all else happens on the event loop."""

    def __init__(self, spec: str, setting: str, allowance: Allowance) -> None:
        self._spec, self._setting, self._allowance = spec, setting, allowance
        self._nursery = Nursery()
        self._living = set[Worker]()
        self._waiting = deque[asyncio.Future[Worker]]()
        self._starting = 0
        self._numbers = itertools.count()
        self._apart = asyncio.Semaphore(allowance.parallel)
        self._tasks = set[asyncio.Task[None]]()
        weakref.finalize(self, _kill, self._living, self._nursery)
        self.taken: Taken = self._run(self._first())

    def ask(self, questions: Sequence[Any]) -> list[Outcomes]:
        """The outcomes of each question, which is a list of answers."""
        return self._run(self._all(questions))

    def close(self) -> None:
        """End them all."""
        self._run(self._end())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        done = asyncio.run_coroutine_threadsafe(work, event_loop())
        try:
            return done.result()
        except BaseException:  # the user may be in a hurry
            done.cancel()
            raise

    async def _first(self) -> Taken:
        worker = await start_worker(self._nursery, self._spec, self._setting)
        worker.room = self._room(worker.taken)
        self._living.add(worker)
        return worker.taken

    async def _end(self) -> None:
        for worker in self._living:
            worker.end("the reward was closed")
        await asyncio.gather(*(worker.process.wait() for worker in self._living))
        self._living.clear()
        self._nursery.let_go()
        await self._nursery.ended()

    async def _all(self, questions: Sequence[Any]) -> list[Outcomes]:
        return list(await asyncio.gather(*(self._outcomes(asked) for asked in questions)))

    # --- one question ---------------------------------------------------------------------------------------------

    async def _outcomes(self, asked: Sequence[Any]) -> Outcomes:
        """What becomes of one question, asked again where it failed in passing and there is time left."""
        loop, outcomes, end = asyncio.get_running_loop(), Outcomes(), 0.0
        for turn in range(TRIES):
            try:
                worker = await self._take()
            except Lost as lost:
                return outcomes or [Unscored(lost.why)] * len(asked)
            end = end or loop.time() + self._allowance.seconds
            try:
                outcomes = await worker.ask(
                    next(self._numbers), asked, max(0.0, end - loop.time()), self._allowance.seconds
                )
            except Lost as lost:
                self._give_back(worker)
                return [Unscored(lost.why)] * len(asked) if lost.alone else await self._by_itself(asked)
            self._give_back(worker)
            pause = FIRST_WAIT_SECONDS * 2**turn * _jitter.random()
            passing = all(isinstance(one, Unscored) and one.passing for one in outcomes)
            if not passing or loop.time() + pause >= end:
                break
            await asyncio.sleep(pause)
        return outcomes

    async def _by_itself(self, asked: Sequence[Any]) -> Outcomes:
        """In a worker that is asked nothing else."""
        async with self._apart:
            try:
                worker = await start_worker(self._nursery, self._spec, self._setting)
            except HoldfastError as error:
                return [Unscored(str(error))] * len(asked)
            try:
                return await worker.ask(next(self._numbers), asked, self._allowance.seconds, self._allowance.seconds)
            except Lost as lost:
                return [Unscored(lost.why)] * len(asked)
            finally:
                worker.end("done")

    # --- the workers ----------------------------------------------------------------------------------------------

    async def _take(self) -> Worker:
        """A worker with room for one more question."""
        self._forget_lost()
        for worker in self._living:
            if worker.room:
                worker.room -= 1
                return worker
        turn: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        if self._living:
            asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._grow)
        else:
            self._grow()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._give_back(turn.result())
            raise

    def _give_back(self, worker: Worker) -> None:
        if worker.lost:
            self._forget_lost()
            self._grow()
            return
        worker.room += 1
        self._hand_out()

    def _hand_out(self) -> None:
        for worker in self._living:
            while worker.room and not worker.lost and self._waiting:
                turn = self._waiting.popleft()
                if not turn.done():
                    worker.room -= 1
                    turn.set_result(worker)

    def _forget_lost(self) -> None:
        self._living -= {worker for worker in self._living if worker.lost}

    def _grow(self) -> None:
        """One more worker, where somebody waits for it and there is room."""
        most = 1 if self.taken.asynchronous else self._allowance.parallel
        there = len(self._living) + self._starting
        if self._waiting and there < min(most, there + len(self._waiting)) and (not there or self._has_room()):
            self._starting += 1
            task = asyncio.get_running_loop().create_task(self._add())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _add(self) -> None:
        try:
            worker = await start_worker(self._nursery, self._spec, self._setting)
        except HoldfastError as error:
            self._starting -= 1
            if not self._living and not self._starting:  # nobody is left to wait for
                while self._waiting:
                    turn = self._waiting.popleft()
                    if not turn.done():
                        turn.set_exception(Lost(str(error)))
            return
        self._starting -= 1
        worker.room = self._room(worker.taken)
        self._living.add(worker)
        self._hand_out()

    def _room(self, taken: Taken) -> int:
        return self._allowance.parallel if taken.asynchronous and not taken.batched else 1

    def _has_room(self) -> bool:
        """Whether the machine's free memory holds another worker as large as the largest."""
        largest = max((_memory_of(worker.process.pid) for worker in self._living), default=0)
        free = _kilobytes(Path("/proc/meminfo"), "MemAvailable")
        return not free or ROOM * largest <= free


def _kill(workers: set[Worker], nursery: Nursery) -> None:
    for worker in workers:
        worker.process.kill()
    nursery.let_go()


def _memory_of(process: int) -> int:
    return _kilobytes(Path(f"/proc/{process}/status"), "VmRSS")


def _kilobytes(file: Path, name: str) -> int:
    """A line of a table of the system's; 0 where there is none."""
    with suppress(OSError, ValueError):
        for line in file.read_text(encoding="utf-8").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
    return 0
