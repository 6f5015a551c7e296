"""The tables of the preference store, and the triggers that make them append-only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    event,
)
from sqlalchemy.types import TypeDecorator

from holdfast.documents import json_of
from holdfast.errors import HoldfastError
from holdfast.models.prompt import Message, Prompt
from holdfast.preferences.comparison import PURPOSES, Choice
from holdfast.preferences.encoding import json_text, prompt_json

APPLICATION = "holdfast-preferences"
SCHEMA_VERSION = 7
NAME_LENGTH = 200
# In the place of a choice: the labeller has taken back what they said before, and says nothing.
WITHDRAWN = "no"

_decode = json.JSONDecoder().raw_decode


class JsonText(TypeDecorator[Any]):
    """A value as JSON text: exact for any text and any integer, on every database."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else json_text(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        # `json.loads` without what it does for text that is not our own; a large store has millions of these.
        try:
            return None if value is None else _decode(value)[0]
        except (ValueError, RecursionError) as error:
            raise not_json() from error


class PromptText(TypeDecorator[Prompt]):
    """A prompt as JSON text: a string, or a list of messages."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Prompt | None, dialect: Dialect) -> str | None:
        return None if value is None else json_text(prompt_json(value))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Prompt | None:
        return None if value is None else _prompt_of(value)


@lru_cache(maxsize=10_000)
def _prompt_of(text: str) -> Prompt:
    """A prompt is asked about again and again; one object stands for all of its comparisons."""
    try:
        prompt = json_of(text)
    except ValueError as error:
        raise not_json() from error
    return prompt if isinstance(prompt, str) else tuple(Message(turn["role"], turn["content"]) for turn in prompt)


def not_json() -> HoldfastError:
    return HoldfastError("The database is damaged: what it holds as JSON is not; bring it back from a copy.")


def name_type() -> String:
    """A key, sorted by code point on every database, so that order never depends on a server's locale."""
    return String(NAME_LENGTH).with_variant(String(NAME_LENGTH, collation="C"), "postgresql")


def one_of(column: str, names: Sequence[str]) -> CheckConstraint:
    """Have the database refuse every other text."""
    return CheckConstraint(f"{column} IN ({', '.join(repr(str(name)) for name in names)})")


metadata = MetaData()

schema_version = Table(
    "schema_version",
    metadata,
    Column("application", String(NAME_LENGTH), primary_key=True),
    Column("version", Integer, nullable=False),
)

responses = Table(
    "responses",
    metadata,
    Column(
        "id", name_type(), primary_key=True
    ),  # the hash of the rest: one response in many comparisons is stored once
    Column("text", JsonText, nullable=False),
    Column("policy_version", Text, nullable=False),
    Column("round", Integer, nullable=False),
    Column("seed", JsonText, nullable=False),  # generators take seeds up to 2**64, past the largest integer column
    Column("token_ids", JsonText),
    Column("finished", Boolean, nullable=False),
)

comparisons = Table(
    "comparisons",
    metadata,
    Column("id", name_type(), primary_key=True),
    Column("prompt", PromptText, nullable=False),
    Column("a", name_type(), ForeignKey("responses.id"), nullable=False),
    Column("b", name_type(), ForeignKey("responses.id"), nullable=False),
    Column("round", Integer, nullable=False, index=True),
    Column("purpose", String(12), one_of("purpose", PURPOSES), nullable=False),
    Column("run", name_type(), nullable=False),  # the key of the run that asked it
    Column("repeats", name_type(), ForeignKey("comparisons.id")),
    Index("comparisons_asked", "run", "round"),
)

labels = Table(
    "labels",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("comparison_id", name_type(), ForeignKey("comparisons.id"), nullable=False),
    Column("labeller", name_type(), nullable=False),
    Column("choice", String(3), one_of("choice", (*Choice, WITHDRAWN)), nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    UniqueConstraint("comparison_id", "labeller", "ordinal"),
    sqlite_autoincrement=True,
)

_POSTGRESQL_REFUSAL = """
CREATE OR REPLACE FUNCTION holdfast_append_only() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION '%% are append-only', TG_TABLE_NAME; END $$
"""


def _ddl(dialect: str, statement: str) -> Any:
    """A statement for one kind of database only."""
    return DDL(statement).execute_if(dialect=dialect)  # type: ignore[no-untyped-call]


def make_append_only(table: Table, *keys: tuple[str, ...]) -> None:
    """Have the database refuse to change or delete rows: a label means nothing if its question can change."""
    name = table.name
    refuse = f"BEGIN SELECT RAISE(ABORT, '{name} are append-only'); END"
    for verb in ("UPDATE", "DELETE"):
        statement = f"CREATE TRIGGER {name}_no_{verb.lower()} BEFORE {verb} ON {name} {refuse}"
        event.listen(table, "after_create", _ddl("sqlite", statement))
    # SQLite's INSERT OR REPLACE deletes rows without firing their DELETE triggers, so it is refused by key.
    for key in keys:
        same = " AND ".join(f"{column} = NEW.{column}" for column in key)
        statement = (
            f"CREATE TRIGGER {name}_no_replace_{key[0]} BEFORE INSERT ON {name} "
            f"WHEN EXISTS (SELECT 1 FROM {name} WHERE {same}) {refuse}"
        )
        event.listen(table, "after_create", _ddl("sqlite", statement))
    trigger = _ddl(
        "postgresql",
        f"CREATE TRIGGER {name}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {name} "
        "FOR EACH STATEMENT EXECUTE FUNCTION holdfast_append_only()",
    )
    event.listen(table, "after_create", trigger)


event.listen(metadata, "before_create", _ddl("postgresql", _POSTGRESQL_REFUSAL))
make_append_only(responses, ("id",))
make_append_only(comparisons, ("id",))
make_append_only(labels, ("seq",), ("comparison_id", "labeller", "ordinal"))
