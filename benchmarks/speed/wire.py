"""A driver's end of the line to the benchmark: one JSON object per line each way.

driver    -> {"ready": FACTS}          once, when models are loaded
benchmark -> go | threads N | stop     a word per line
driver    -> {"done": REPORT}          after each word but stop

Drivers run where of Holdfast only the source is there, without what it needs, so this is plain Python.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

from holdfast.track.memory import peak_memory


class Stopped(Exception):
    """The benchmark wants no more iterations."""


class Wire:
    """Requests come on standard input. What libraries print goes to standard error and cannot garble answers."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def ready(self, facts: dict[str, Any]) -> None:
        self._send({"ready": facts})

    def done(self, report: dict[str, Any]) -> None:
        self._send({"done": report})

    def wait(self) -> None:
        """Return when an iteration is asked for; raise `Stopped` when no more will be."""
        while True:
            word, _, argument = sys.stdin.readline().strip().partition(" ")
            if word == "go":
                return
            if word != "threads":
                raise Stopped
            import torch  # Not at the top: the benchmark and its tests speak this language without torch.

            torch.set_num_threads(int(argument))
            self.done({})

    def _send(self, message: dict[str, Any]) -> None:
        self._answers.write(json.dumps(message) + "\n")
        self._answers.flush()


def serve(drive: Callable[[dict[str, Any]], None]) -> None:
    """Work on the job of the command line until the benchmark wants no more."""
    with suppress(Stopped):
        drive(json.loads(sys.argv[1]))


PHASES = ("sample", "score", "update")
Moment = tuple[float, float]


def now() -> Moment:
    """By the clock, and in CPU time of all threads, which does not count what other processes take."""
    return time.perf_counter(), time.process_time()


def report(moments: list[Moment], lengths: list[list[int]]) -> dict[str, Any]:
    """An iteration from its start and the ends of its three phases; `lengths` are tokens of prompt and answer."""
    spent = [[end[i] - start[i] for start, end in pairwise(moments)] for i in (0, 1)]
    return {
        "seconds": sum(spent[0]),
        "cpu_seconds": sum(spent[1]),
        "phases": dict(zip(PHASES, spent[0], strict=True)),
        "cpu_phases": dict(zip(PHASES, spent[1], strict=True)),
        "lengths": lengths,
        "peak_memory": peak_memory(),
    }


def answer_length(tokens: list[int], end_id: int | None) -> int:
    """Tokens up to and with the end."""
    return tokens.index(end_id) + 1 if end_id in tokens else len(tokens)
