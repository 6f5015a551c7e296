"""One process that holds somebody's reward function: begun, asked, and killed where it does not answer.

Processes are forked from one that has done the imports that all of them need (`reward/sources/nursery.py`).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.reward.outcome import OneScore, Unscored

START = "import sys; sys.path[:] = sys.argv[1:]; from holdfast.reward.sources.nursery import main; main()"
# How long a file may take to be imported, a model that it loads included.
START_SECONDS = 300.0
# A worker that gives questions up in time by itself is waited for this much longer.
GRACE_SECONDS = 0.5
# The share of the machine's memory that one may take.
MEMORY_SHARE = 0.5
LONGEST_REPLY = 64 << 20
# One process uses one core, and the order of a set is the same in each.
SURROUNDINGS = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
LOST = "The process that starts those of the reward has ended before it had started one."


class Lost(Exception):
    """A worker that does not answer any more; `alone`: it was asked nothing else."""

    def __init__(self, why: str, alone: bool = True) -> None:
        super().__init__(why)
        self.why, self.alone = why, alone


@dataclass(frozen=True)
class Taken:
    """What the function takes: whole batches or one answer at a time, and which columns (None: all)."""

    batched: bool
    asynchronous: bool
    columns: frozenset[str] | None


@dataclass(frozen=True)
class Newborn:
    """A process of the nursery's, and the two ends of what is said to it; `code` comes when it ends, None if nobody
    knows."""

    pid: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    code: asyncio.Future[int | None]

    async def wait(self) -> int | None:
        return await asyncio.shield(self.code)

    def kill(self) -> None:
        """With all that it has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def send(self, document: Any) -> None:
        self.writer.write(json.dumps(document).encode() + b"\n")

    async def line(self) -> Any:
        """The next thing that it says; None where it says nothing more."""
        with suppress(ConnectionError):
            line = await self.reader.readline()
            return json.loads(line) if line.endswith(b"\n") else None
        return None


class Nursery:
    """Where workers are forked, begun with the first of them, and again where it was lost. Of one event loop."""

    def __init__(self) -> None:
        self._asked: socket.socket | None = None
        self._listener: asyncio.Task[None] | None = None
        self._waiting = deque[asyncio.Future[tuple[int, asyncio.Future[int | None]]]]()
        self._living = dict[int, asyncio.Future[int | None]]()
        self._beginning = asyncio.Lock()

    async def bear(self) -> Newborn:
        """A process that waits for its order."""
        loop = asyncio.get_running_loop()
        async with self._beginning:
            asked = self._asked or await self._begin()
        ours, theirs = socket.socketpair()
        try:
            born = loop.create_future()
            self._waiting.append(born)
            with theirs:
                socket.send_fds(asked, [b"+"], [theirs.fileno()])
            pid, code = await born
            reader, writer = await asyncio.open_unix_connection(sock=ours, limit=LONGEST_REPLY)
        except BaseException as error:
            ours.close()  # it ends, since nobody asks it anything
            if isinstance(error, OSError):
                raise HoldfastError(LOST) from error
            raise
        return Newborn(pid, reader, writer, code)

    async def _begin(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-c", START, *sys.path,
                stdin=theirs.fileno(), stdout=asyncio.subprocess.PIPE, start_new_session=True,
                env={**SURROUNDINGS, **os.environ},
            )  # fmt: skip
        self._asked = ours
        self._listener = asyncio.create_task(self._listen(process, ours))
        return ours

    async def _listen(self, process: asyncio.subprocess.Process, asked: socket.socket) -> None:
        """Hand on who was born and who has ended, until it has ended itself."""
        assert process.stdout is not None
        while line := await process.stdout.readline():
            said = json.loads(line)
            if "born" in said:
                born, pid = self._waiting.popleft(), said["born"]
                self._living[pid] = asyncio.get_running_loop().create_future()
                if not born.done():
                    born.set_result((pid, self._living[pid]))
            else:
                self._living.pop(said["ended"]).set_result(said["code"])
        await process.wait()
        asked.close()
        self._asked = None
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(HoldfastError(LOST))
        for code in self._living.values():
            code.set_result(None)
        self._waiting.clear()
        self._living.clear()

    def let_go(self) -> None:
        """Nobody asks any more, so it ends; any thread may say so."""
        if self._asked is not None:
            with suppress(OSError):
                self._asked.shutdown(socket.SHUT_RDWR)

    async def ended(self) -> None:
        """Wait until it has."""
        if self._listener is not None:
            await self._listener


@dataclass(eq=False)
class Worker:
    """A process that is ready. `room` is for how many more questions; `lost` says why it answers none any more.

    `alone`: when it was lost it was at one question, which is to blame.
    """

    process: Newborn
    taken: Taken
    room: int = 1
    lost: str = ""
    alone: bool = True
    asked: dict[int, asyncio.Future[Any]] = field(default_factory=dict)
    reader: asyncio.Task[None] | None = None

    async def ask(self, number: int, asked: Any, left: float, seconds: float) -> list[OneScore | Unscored]:
        """The outcomes of one question within the time that is left of so many seconds."""
        if self.lost:
            raise Lost(self.lost)
        reply = self.asked[number] = asyncio.get_running_loop().create_future()
        late = f"the reward did not answer within {seconds:g} seconds"
        try:
            self.process.send({"id": number, "seconds": left, "asked": asked})
            async with asyncio.timeout(left + (GRACE_SECONDS if self.taken.asynchronous else 0.0)):
                outcomes = (await reply).get("outcomes")
        except TimeoutError:
            self.end(late)
            raise Lost(self.lost, self.alone) from None
        except asyncio.CancelledError:
            self.end("the run was interrupted")
            raise
        finally:
            del self.asked[number]
        return [Unscored(late)] * len(asked) if outcomes is None else [_outcome(*one) for one in outcomes]

    def end(self, why: str) -> None:
        """Kill it, and tell whoever waits for it why."""
        if not self.lost:
            self.lost, self.alone = why, len(self.asked) <= 1
        self.process.kill()
        for waiting in self.asked.values():
            if not waiting.done():
                waiting.set_exception(Lost(self.lost, self.alone))

    async def read(self) -> None:
        """Hand on what it says until it ends."""
        why = ""
        try:
            while reply := await self.process.line():
                waiting = self.asked.get(reply["id"])
                if waiting is not None and not waiting.done():
                    waiting.set_result(reply)
        except ValueError as error:
            why = f"the reward's process gave a reply that cannot be read ({error})"
        if why or self.lost:
            self.process.kill()
        self.end(why or _ended(await self.process.wait()))


async def start_worker(nursery: Nursery, spec: str, setting: str) -> Worker:
    """A process that has imported the file and found the function in it, or a sentence about why there is none."""
    process = await nursery.bear()
    try:
        process.send({"spec": spec, "setting": setting, "memory": int(MEMORY_SHARE * _machine_memory())})
        async with asyncio.timeout(START_SECONDS):
            said = await process.line()
            if said is None:
                raise HoldfastError(f"{spec} cannot be used: while it was imported, {_ended(await process.wait())}.")
    except BaseException as error:
        process.kill()
        if isinstance(error, TimeoutError):
            raise HoldfastError(
                f"{spec} was not imported within {START_SECONDS:g} seconds; see what holds it up."
            ) from None
        raise
    if "failed" in said:
        raise HoldfastError(said["failed"])
    columns = said["columns"]
    taken = Taken(said["batched"], said["asynchronous"], None if columns is None else frozenset(columns))
    worker = Worker(process, taken)
    worker.reader = asyncio.create_task(worker.read())
    return worker


def _outcome(given: float | str, more: Any) -> OneScore | Unscored:
    return Unscored(given, more) if isinstance(given, str) else OneScore(given, more)


def _ended(code: int | None) -> str:
    if code is None:
        return "the reward's process ended"
    if code >= 0:
        return f"the reward's process ended by itself (exit code {code})"
    hint = ", as the system does where memory runs out" if -code == signal.SIGKILL else ""
    return f"the reward's process was ended by {signal.Signals(-code).name}{hint}"


def _machine_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
