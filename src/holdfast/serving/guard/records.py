"""What a training's server has been told and has asked, in tables beside its labels: the truth after a kill.

batches   what was posted, in the order in which it came in; the id makes sending twice the same as sending once
needs     answers that the client was asked for, with those it gave
actions   what it was advised to do, with what it reports to have done
documents settings, state after a review, and what the client has said of the training as a whole
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table, func, insert, select, update

from holdfast.preferences.database import Database
from holdfast.preferences.encoding import json_text
from holdfast.preferences.schema import JsonText
from holdfast.web.security import Refused

LONGEST_ID = 200
# Batches that are read at once by whoever goes through them.
PAGE = 64

tables = MetaData()

batches = Table(
    "guard_batches",
    tables,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("id", String(LONGEST_ID), nullable=False, unique=True),
    Column("sha256", String(64), nullable=False),
    Column("answers", Integer, nullable=False),
    Column("document", JsonText, nullable=False),
    sqlite_autoincrement=True,
)

needs = Table(
    "guard_needs",
    tables,
    Column("id", String(LONGEST_ID), primary_key=True),
    Column("question", JsonText, nullable=False),
    Column("answer", JsonText),
)

actions = Table(
    "guard_actions",
    tables,
    Column("id", String(LONGEST_ID), primary_key=True),
    Column("advice", JsonText, nullable=False),
    Column("report", JsonText),
    Column("seq", BigInteger),  # the newest batch when it was reported
)

documents = Table(
    "guard_documents",
    tables,
    Column("name", String(LONGEST_ID), primary_key=True),
    Column("document", JsonText, nullable=False),
)


@dataclass(frozen=True)
class StoredBatch:
    """A batch as it was posted, and its place in the order of arrival."""

    seq: int
    document: Mapping[str, Any]


@dataclass(frozen=True)
class Settled:
    """What a client reports of an advised action, and the newest batch that was there by then."""

    report: Mapping[str, Any]
    seq: int


class GuardRecords:
    """The tables of one training; any thread may use them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        with database.write() as connection:
            tables.create_all(connection)

    # ---- batches

    def add_batch(self, name: str, document: Mapping[str, Any], answers: int) -> bool:
        """Store a batch durably; False where it is there already. Another one of the same id is refused."""
        digest = hashlib.sha256(json_text(document).encode()).hexdigest()
        with self._database.write() as connection:
            known = connection.execute(select(batches.c.sha256).where(batches.c.id == name)).scalar_one_or_none()
            if known is None:
                row = {"id": name, "sha256": digest, "answers": answers, "document": document}
                connection.execute(insert(batches), [row])
        if known not in (None, digest):
            raise Refused(409, f"There is another batch called {name!r}; give each batch an id of its own.")
        return known is None

    def batches_after(self, seq: int) -> list[StoredBatch]:
        """The next batches, some at a time."""
        query = select(batches.c.seq, batches.c.document).where(batches.c.seq > seq).order_by(batches.c.seq)
        with self._database.read() as connection:
            return [StoredBatch(int(row.seq), row.document) for row in connection.execute(query.limit(PAGE))]

    def totals(self) -> tuple[int, int, int]:
        """How many batches and answers there are, and the newest batch's place."""
        query = select(func.count(), func.coalesce(func.sum(batches.c.answers), 0), func.max(batches.c.seq))
        with self._database.read() as connection:
            count, answers, newest = connection.execute(query).one()
        return int(count), int(answers), int(newest or 0)

    # ---- needs

    def need(self, name: str) -> tuple[Mapping[str, Any], Mapping[str, Any] | None] | None:
        """A need by its id, with its answer where there is one."""
        with self._database.read() as connection:
            row = connection.execute(select(needs).where(needs.c.id == name)).one_or_none()
        return None if row is None else (row.question, row.answer)

    def add_need(self, name: str, question: Mapping[str, Any]) -> None:
        with self._database.write() as connection:
            connection.execute(insert(needs), [{"id": name, "question": question}])

    def answer_need(self, name: str, answer: Mapping[str, Any]) -> None:
        """Answers to a need; the first that come are kept."""
        with self._database.write() as connection:
            open_one = update(needs).where(needs.c.id == name, needs.c.answer.is_(None))
            connection.execute(open_one.values(answer=answer))

    # ---- actions

    def action(self, name: str) -> tuple[Mapping[str, Any], Settled | None] | None:
        """An advised action by its id, with what was reported of it."""
        with self._database.read() as connection:
            row = connection.execute(select(actions).where(actions.c.id == name)).one_or_none()
        return None if row is None else (row.advice, None if row.report is None else Settled(row.report, row.seq))

    def add_action(self, name: str, advice: Mapping[str, Any]) -> None:
        with self._database.write() as connection:
            connection.execute(insert(actions), [{"id": name, "advice": advice}])

    def settle_action(self, name: str, report: Mapping[str, Any]) -> None:
        """What was done about it; the first report is kept."""
        with self._database.write() as connection:
            newest = connection.execute(select(func.max(batches.c.seq))).scalar() or 0
            open_one = update(actions).where(actions.c.id == name, actions.c.report.is_(None))
            connection.execute(open_one.values(report=report, seq=newest))

    # ---- documents

    def document(self, name: str) -> Any:
        """What is kept under a name; None where there is nothing."""
        with self._database.read() as connection:
            query = select(documents.c.document).where(documents.c.name == name)
            return connection.execute(query).scalar_one_or_none()

    def keep(self, name: str, document: Any) -> None:
        """Keep it in the place of what was there."""
        with self._database.write() as connection:
            there = update(documents).where(documents.c.name == name).values(document=document)
            if connection.execute(there).rowcount == 0:
                connection.execute(insert(documents), [{"name": name, "document": document}])
