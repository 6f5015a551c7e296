"""How far the questions are that a run has asked together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, exists, func, select

from holdfast.preferences.comparison import Purpose
from holdfast.preferences.people_schema import queue, submissions

# Ranks: audits come first, and what no run waits for any more is behind all others.
URGENT, USUAL, LATE = range(3)


@dataclass(frozen=True)
class LabelBatch:
    """What a run asked for together: how many comparisons, and how many of them are answered or left out."""

    name: str
    purpose: Literal["audit", "training"]
    asked: int
    answered: int
    dropped: int
    asked_at: float

    @property
    def open(self) -> int:
        return self.asked - self.answered - self.dropped


def asked_for(purposes: Iterable[Purpose]) -> Literal["audit", "training"]:
    """What people are told that a batch is for; whether a pair is asked again, or why, is not for them to know."""
    return "audit" if "audit" in purposes else "training"


def unfinished(run: str) -> Any:
    """The batches of a run that have something open and are not closed, as a condition."""
    names = select(queue.c.batch).where(
        queue.c.run == run, queue.c.state.in_(("open", "leased")), queue.c.slot == 0, queue.c.purpose != "check",
        queue.c.rank < LATE,
    )  # fmt: skip
    return queue.c.batch.in_(names.distinct())


def read_batches(connection: Connection, run: str, which: Any) -> list[LabelBatch]:
    """Batches, the most urgent first. A comparison is answered as soon as one opinion of it is in."""
    answered = exists().where(
        submissions.c.comparison_id == queue.c.comparison_id, submissions.c.answer != "skip",
        submissions.c.undone_at.is_(None),
    )  # fmt: skip
    inner = (
        select(
            queue.c.batch, queue.c.purpose, queue.c.state, queue.c.asked_at, queue.c.rank, answered.label("answered")
        )
        .where(queue.c.run == run, queue.c.slot == 0, queue.c.purpose != "check", which)
        .subquery()
    )
    query = select(
        inner.c.batch, inner.c.purpose, inner.c.state, inner.c.answered, func.count().label("count"),
        func.min(inner.c.asked_at).label("asked_at"), func.min(inner.c.rank).label("rank"),
    ).group_by(inner.c.batch, inner.c.purpose, inner.c.state, inner.c.answered)  # fmt: skip
    rows_of: dict[str, list[Any]] = {}
    for row in connection.execute(query):
        rows_of.setdefault(row.batch, []).append(row)
    ordered = sorted(
        (min(row.rank for row in rows), min(row.asked_at for row in rows), name) for name, rows in rows_of.items()
    )
    return [_batch(name, rows_of[name]) for _, _, name in ordered]


def _batch(name: str, rows: list[Any]) -> LabelBatch:
    """One batch of the rows that have its name."""

    def counted(which: Any) -> int:
        return sum(row._mapping["count"] for row in rows if which(row))

    return LabelBatch(
        name=name,
        purpose=asked_for(row.purpose for row in rows),
        asked=counted(lambda row: True),
        answered=counted(lambda row: row.answered or row.state == "done"),
        dropped=counted(lambda row: row.state == "dropped" and not row.answered),
        asked_at=min(row.asked_at for row in rows),
    )
