"""How far the questions are that a run has asked together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, and_, case, exists, func, or_, select

from holdfast.preferences.comparison import Purpose
from holdfast.preferences.people_schema import queue, submissions
from holdfast.preferences.schema import JsonText

# Ranks: audits come first, and what no run waits for any more is behind all others.
URGENT, USUAL, LATE = range(3)


@dataclass(frozen=True)
class LabelBatch:
    """What a run asked for together and why: how many comparisons, and how many of them are answered or left out."""

    name: str
    purpose: Literal["audit", "training"]
    asked: int
    answered: int
    dropped: int
    asked_at: float
    reason: str = ""

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
    columns = (queue.c.batch, queue.c.purpose, queue.c.reason, queue.c.state, queue.c.asked_at, queue.c.rank)
    inner = (
        select(*columns, answered.label("answered"))
        .where(queue.c.run == run, queue.c.slot == 0, queue.c.purpose != "check", which)
        .subquery()
    )
    done = or_(inner.c.answered, inner.c.state == "done")
    dropped = and_(inner.c.state == "dropped", ~inner.c.answered)
    rank, asked_at = func.min(inner.c.rank), func.min(inner.c.asked_at)
    audits, reason = _number(inner.c.purpose == "audit"), func.max(inner.c.reason, type_=JsonText)
    query = (
        select(inner.c.batch, func.count(), _number(done), _number(dropped), audits, asked_at, reason)
        .group_by(inner.c.batch)
        .order_by(rank, asked_at, inner.c.batch)
    )
    return [
        LabelBatch(name, "audit" if urgent else "training", count, answered, left_out, at, why)
        for name, count, answered, left_out, urgent, at, why in connection.execute(query)
    ]


def _number(condition: Any) -> Any:
    """In how many rows of a group a condition holds."""
    return func.sum(case((condition, 1), else_=0))
