"""One process that holds somebody's reward function: begun, asked, and killed where it does not answer."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.reward.outcome import OneScore, Unscored

START = "import sys; sys.path[:] = sys.argv[1:]; from holdfast.reward.sources.worker import main; main()"
# How long a file may take to be imported, a model that it loads included.
START_SECONDS = 300.0
# A worker that gives questions up in time by itself is waited for this much longer.
GRACE_SECONDS = 0.5
# The share of the machine's memory that one may take.
MEMORY_SHARE = 0.5
LONGEST_REPLY = 64 << 20
# One process uses one core, and the order of a set is the same in each.
SURROUNDINGS = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}


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


@dataclass(eq=False)
class Worker:
    """A process that is ready. `room` is for how many more questions; `lost` says why it answers none any more.

    `alone`: when it was lost it was at one question, which is to blame.
    """

    process: asyncio.subprocess.Process
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
            _send(self.process, {"id": number, "seconds": left, "asked": asked})
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
        self.kill()
        for waiting in self.asked.values():
            if not waiting.done():
                waiting.set_exception(Lost(self.lost, self.alone))

    def kill(self) -> None:
        """With all that it has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    async def read(self) -> None:
        """Hand on what it says until it ends."""
        why = ""
        try:
            while reply := await _line(self.process):
                waiting = self.asked.get(reply["id"])
                if waiting is not None and not waiting.done():
                    waiting.set_result(reply)
        except ValueError as error:
            why = f"the reward's process gave a reply that cannot be read ({error})"
        if why or self.lost:
            self.kill()
        self.end(why or _ended(await self.process.wait()))


async def start_worker(spec: str, setting: str) -> Worker:
    """A process that has imported the file and found the function in it, or a sentence about why there is none."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", START, *sys.path,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=LONGEST_REPLY, start_new_session=True,
        env={**SURROUNDINGS, **os.environ},
    )  # fmt: skip
    try:
        _send(process, {"spec": spec, "setting": setting, "memory": int(MEMORY_SHARE * _machine_memory())})
        async with asyncio.timeout(START_SECONDS):
            said = await _line(process)
            if said is None:
                raise HoldfastError(f"{spec} cannot be used: while it was imported, {_ended(await process.wait())}.")
    except BaseException as error:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
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


def _send(process: asyncio.subprocess.Process, document: Any) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(document).encode() + b"\n")


async def _line(process: asyncio.subprocess.Process) -> Any:
    """The next thing that it says; None where it says nothing more."""
    assert process.stdout is not None
    line = await process.stdout.readline()
    return json.loads(line) if line.endswith(b"\n") else None


def _outcome(given: float | str, more: Any) -> OneScore | Unscored:
    return Unscored(given, more) if isinstance(given, str) else OneScore(given, more)


def _ended(code: int) -> str:
    if code >= 0:
        return f"the reward's process ended by itself (exit code {code})"
    hint = ", as the system does where memory runs out" if -code == signal.SIGKILL else ""
    return f"the reward's process was ended by {signal.Signals(-code).name}{hint}"


def _machine_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
