"""Rows of run directories: those of real runs, copied and edited, and lone ones for what no small run comes to."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import small_run
from lone_events import fields_of


def write_lines(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def event(step: int, round: int, kind: str, **fields: object) -> dict[str, object]:
    """An event of which only these fields matter."""
    at = {"step": step, "round": round, "event": kind, "time": "2026-11-16T01:30:49.307+00:00"}
    return at | fields_of(kind, **fields)


def sample(step: int, prompt_index: int, prompt: str, response: str, round: int = 0) -> dict[str, object]:
    """An answer to a fixed prompt, which came to its end."""
    row = {"step": step, "round": round, "prompt_index": prompt_index, "prompt": prompt, "response": response}
    return row | {"finished": True}


def copy_of(run: Path, to: Path) -> Path:
    """The files that a report is made from."""
    to.mkdir(parents=True, exist_ok=True)
    for name in ("config.toml", "manifest.json", *(path.name for path in run.glob("*.jsonl"))):
        shutil.copy(run / name, to)
    return to


def of_round(run: Path, kind: str, number: int) -> dict[str, object]:
    """The event of that kind in a round of a real run."""
    (row,) = [row for row in small_run.events_of(run, kind) if row["round"] == number]
    return row
