"""The process in which somebody's reward function runs: questions come as JSON lines, outcomes go the same way.

    {"spec", "setting", "memory"}                ->  {"batched", "asynchronous", "columns"} or {"failed"}
    {"id", "seconds", "asked": [[prompt, answer, columns], ...]}
                                                 ->  {"id", "outcomes": [[score, components] or [why, passing], ...]}

The lines have pipes of their own: what the function prints goes to the terminal's error output. It may be killed at any
time, and ends by itself when nobody asks any more, in the middle of a call too.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO

from holdfast.errors import HoldfastError, OwnCodeError
from holdfast.own_code import load_own
from holdfast.reward.outcome import OneScore, Unscored
from holdfast.reward.sources.call import Call, Question


def main() -> None:
    """Serve one function until the pipe is closed."""
    questions, answers = _pipes()
    if not (line := questions.readline()):
        return  # nobody asks after all
    order = json.loads(line)
    _keep_within(order["memory"])
    # Files beside the user's own are found, as where it is run by itself.
    sys.path.insert(0, str(Path(order["spec"].rpartition(":")[0]).resolve().parent))

    def tell(document: object) -> None:
        try:
            answers.write(json.dumps(document).encode() + b"\n")
            answers.flush()
        except BrokenPipeError:
            os._exit(0)  # nobody asks any more

    try:
        call = _loaded(order["spec"], order["setting"])
    except HoldfastError as error:
        tell({"failed": str(error)})
        return
    columns = None if call.all_columns else list(call.wanted)
    tell({"batched": call.batched, "asynchronous": call.asynchronous, "columns": columns})
    if call.asynchronous:
        asyncio.run(_overlapping(call, questions, tell))
    else:
        _one_by_one(call, questions, tell)


def _pipes() -> tuple[BinaryIO, BinaryIO]:
    """The lines' own pipes; standard input is empty from now on, and standard output goes where errors go."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    return questions, answers


def _keep_within(memory: int) -> None:
    """Of a machine without memory this process is to be ended first, and it is to run out before the machine does."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (memory, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def _loaded(spec: str, setting: str) -> Call:
    try:
        return Call.of(load_own(spec, setting, what="function or class"), spec)
    except HoldfastError:
        raise
    except (Exception, SystemExit) as error:
        raise OwnCodeError(f"{spec} cannot be used", error) from error


def _one_by_one(call: Call, questions: BinaryIO, tell: Callable[[object], None]) -> None:
    """In the main thread, where a function may set alarms."""
    arrived: SimpleQueue[dict[str, Any]] = SimpleQueue()
    threading.Thread(target=_read, args=(questions, arrived.put), daemon=True).start()
    while True:
        question = arrived.get()
        tell(_reply(question, call.outcomes_now(_asked(question))))


async def _overlapping(call: Call, questions: BinaryIO, tell: Callable[[object], None]) -> None:
    """Each question in a task of its own, given up when its time is over."""
    loop, arrived = asyncio.get_running_loop(), asyncio.Queue[dict[str, Any]]()
    threading.Thread(
        target=_read, args=(questions, lambda line: loop.call_soon_threadsafe(arrived.put_nowait, line)), daemon=True
    ).start()
    tasks = set[asyncio.Task[None]]()

    async def answer(question: dict[str, Any]) -> None:
        try:
            async with asyncio.timeout(question["seconds"]):
                tell(_reply(question, await call.outcomes(_asked(question))))
        except TimeoutError:
            tell({"id": question["id"], "late": True})

    while True:
        task = asyncio.create_task(answer(await arrived.get()))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


def _read(questions: BinaryIO, put: Callable[[dict[str, Any]], object]) -> None:
    """Every question as it comes; without anybody to ask any, the process ends, whatever it is at."""
    with suppress(ConnectionError):
        for line in questions:
            put(json.loads(line))
    os._exit(0)


def _asked(question: dict[str, Any]) -> list[Question]:
    return [Question(*one) for one in question["asked"]]


def _reply(question: dict[str, Any], outcomes: Sequence[OneScore | Unscored]) -> dict[str, object]:
    return {"id": question["id"], "outcomes": [_as_json(one) for one in outcomes]}


def _as_json(outcome: OneScore | Unscored) -> list[object]:
    if isinstance(outcome, Unscored):
        return [outcome.why, outcome.passing]
    return [outcome.score, dict(outcome.components)]
