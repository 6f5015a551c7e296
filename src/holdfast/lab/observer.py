"""The only reader of gold: it watches the loop and writes what is true to a file the loop never opens."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, BinaryIO, Protocol

from holdfast.checkpoint.files import sync
from holdfast.errors import HoldfastError, first_line
from holdfast.loop import Answer
from holdfast.preferences.types import Prompt
from holdfast.worlds.protocol import World

# Held-out prompts are answered with draws of the observer's own, the same ones after every round.
OBSERVER_SEED = 20_221_019
BLOCK = 1 << 16


class Gold(Protocol):
    """The truth about an answer."""

    def __call__(self, prompt: Prompt, response: str, finished: bool) -> float: ...


def gold_of(world: World) -> Gold | None:
    """A world's gold score, where it knows one."""
    return getattr(world, "gold", None)


class GoldObserver:
    """Scores each step's answers and, after every round, answers to held-out prompts, into gold.jsonl."""

    def __init__(self, gold: Gold, path: Path, heldout: Sequence[Prompt], heldout_count: int = 100) -> None:
        self._gold, self._path = gold, path
        self._heldout = list(heldout[:heldout_count])

    def after_step(self, step: int, round: int, prompts: Sequence[Prompt], answers: Sequence[Answer]) -> None:
        self._append(step=step, round=round, split="rollout", gold=fmean(self._scores(prompts, answers)))

    def after_samples(self, step: int, round: int, prompts: Sequence[Prompt], answers: Sequence[Answer]) -> None:
        for i, score in enumerate(self._scores(prompts, answers)):
            self._append(step=step, round=round, split="samples", prompt_index=i, gold=score)

    def after_round(self, step: int, round: int, answer: Callable[[Sequence[Prompt], int], Sequence[Answer]]) -> None:
        if self._heldout:
            scores = self._scores(self._heldout, answer(self._heldout, OBSERVER_SEED))
            self._append(step=step, round=round, split="heldout", gold=fmean(scores), answers=len(scores))

    def rewind(self, step: int) -> None:
        """Forget what was seen after `step`; a torn last line goes too."""
        if not self._path.exists():
            return
        with self._path.open("r+b") as file:
            # Rows come in order of step, so what has to go is at the end, however long the file is.
            end, ends_line = _end_of(file, step)
            file.truncate(end)
            if not ends_line:
                file.seek(end)
                file.write(b"\n")
            file.flush()
            sync(file.fileno())

    def _scores(self, prompts: Sequence[Prompt], answers: Sequence[Answer]) -> list[float]:
        try:
            return [self._gold(p, a.text, a.finished) for p, a in zip(prompts, answers, strict=True)]
        except Exception as error:  # the world may be the user's own code
            raise HoldfastError(f"The world's gold failed: {first_line(error)}") from error

    def _append(self, **row: Any) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def _end_of(file: BinaryIO, step: int) -> tuple[int, bool]:
    """Where the last row that stays ends, and whether its line is ended too."""
    end = file.seek(0, os.SEEK_END)
    tail = b""
    while True:
        start = max(0, end - BLOCK)
        file.seek(start)
        tail = file.read(end - start) + tail
        lines = tail.split(b"\n")
        # The first piece may be the end of a longer line, unless it begins the file.
        for i in range(len(lines) - 1, 0 if start else -1, -1):
            if _step_of(lines[i]) <= step:
                return start + len(b"\n".join(lines[: i + 1])) + (i < len(lines) - 1), i < len(lines) - 1
        if start == 0:
            return 0, True
        end, tail = start, lines[0]


def _step_of(line: bytes) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")
