"""Bringing an older database up to the present schema, with everything in it, in one transaction.

    version 1   comparisons and labels
    version 2   accounts, queue, submissions and what goes with them; a label may be withdrawn

A release refuses a database newer than itself. One that is at work while another upgrades the database finds out at its
next write and stops with a sentence.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, text, update

from holdfast.preferences.people_schema import PEOPLE_TABLES
from holdfast.preferences.schema import (
    APPLICATION,
    CHOICE_RULE,
    CHOICE_RULE_NAME,
    SCHEMA_VERSION,
    labels,
    metadata,
    schema_version,
)

OLDEST = 1


def migrate(connection: Connection, version: int) -> None:
    """Every step from a version to the present one; the caller holds the only transaction that writes."""
    for number in range(version, SCHEMA_VERSION):
        _STEPS[number](connection)
    stamp = update(schema_version).where(schema_version.c.application == APPLICATION)
    connection.execute(stamp.values(version=SCHEMA_VERSION))


def _people(connection: Connection) -> None:
    """1 -> 2: a label may say that the one before it is taken back; tables for people at work."""
    if connection.dialect.name == "sqlite":
        _rebuild_labels(connection)
    else:
        connection.execute(text(f"ALTER TABLE labels DROP CONSTRAINT {CHOICE_RULE_NAME}"))
        connection.execute(text(f"ALTER TABLE labels ADD CONSTRAINT {CHOICE_RULE_NAME} CHECK ({CHOICE_RULE})"))
    metadata.create_all(connection, tables=list(PEOPLE_TABLES))


def _rebuild_labels(connection: Connection) -> None:
    """SQLite cannot change a rule of a table, so the labels move into a new one, each with its number."""
    triggers = text("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'labels'")
    for (name,) in connection.execute(triggers).all():
        connection.execute(text(f'DROP TRIGGER "{name}"'))
    connection.execute(text("ALTER TABLE labels RENAME TO labels_before"))
    labels.create(connection)
    columns = ", ".join(labels.c.keys())
    connection.execute(text(f"INSERT INTO labels ({columns}) SELECT {columns} FROM labels_before ORDER BY seq"))
    connection.execute(text("DROP TABLE labels_before"))


_STEPS: dict[int, Callable[[Connection], None]] = {1: _people}
