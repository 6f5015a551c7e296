"""The tables of people at work: accounts, the queue of questions, what was handed in, and what owners ask of a run.

    comparisons -> queue (a row for each opinion wanted) -> lease -> submission -> labels

A label itself is only ever added; these tables say who may answer, who is answering, and how the answer came about.
Times are seconds since 1970, so that every database compares them alike.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    UniqueConstraint,
)

from holdfast.preferences.comparison import PURPOSES
from holdfast.preferences.schema import JsonText, make_append_only, metadata, name_type, one_of

ROLES = ("owner", "labeller", "viewer")
ANSWERS = ("a", "b", "tie", "both_bad", "skip")


def _number(name: str) -> Column[int]:
    return Column(name, BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True)


accounts = Table(
    "accounts",
    metadata,
    _number("id"),
    Column("name", name_type(), nullable=False),
    Column("folded", name_type(), nullable=False, unique=True),  # the name without its case: one person has each
    Column("role", String(10), one_of("role", ROLES), nullable=False),
    Column("password", String(300), nullable=False),  # an argon2 hash with its parameters and salt
    Column("created_at", Double, nullable=False),
    Column("disabled_at", Double),
    sqlite_autoincrement=True,
)

sessions = Table(
    "sessions",
    metadata,
    Column("token", String(64), primary_key=True),  # the SHA-256 of what the browser holds
    Column("account_id", ForeignKey("accounts.id"), nullable=False, index=True),
    Column("csrf", String(64), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
)

invitations = Table(
    "invitations",
    metadata,
    Column("token", String(64), primary_key=True),  # a SHA-256 too: who reads the table cannot use it
    Column("role", String(10), one_of("role", ROLES), nullable=False),
    Column("account", name_type()),  # whose password it is to set anew; for a new account nobody's
    Column("made_by", name_type(), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("used_at", Double),
    Column("used_by", name_type()),
)

queue = Table(
    "queue",
    metadata,
    Column("comparison_id", name_type(), ForeignKey("comparisons.id"), primary_key=True),
    Column("slot", Integer, primary_key=True),  # 0 for the first opinion, 1 for the second, ...
    Column("run", name_type(), nullable=False),
    Column("batch", name_type(), nullable=False),  # what was asked for together, and is waited for together
    Column("purpose", String(12), one_of("purpose", PURPOSES), nullable=False),
    Column("reason", JsonText, nullable=False),  # why the batch was asked for, and why there are so many, in words
    Column("rank", Integer, nullable=False),  # lower ranks are handed out first
    Column("place", BigInteger, nullable=False),
    Column("claim", Double),  # the ensemble's probability that people prefer the first side
    Column("asked_at", Double, nullable=False),
    Column("state", String(8), one_of("state", ("open", "leased", "done", "dropped")), nullable=False),
    Column("holder", name_type()),
    Column("lease", String(64), unique=True),
    Column("swapped", Boolean),  # whether the holder sees the second side on the left
    Column("leased_at", Double),
    Column("expires_at", Double),
    Index("queue_next", "run", "state", "rank", "place"),
    Index("queue_batch", "run", "batch", "state"),
    Index("queue_holder", "holder", "state"),
)

submissions = Table(
    "submissions",
    metadata,
    _number("seq"),
    Column("id", String(64), nullable=False, unique=True),  # chosen by the sender: the same one again does nothing
    Column("run", name_type(), nullable=False),
    Column("labeller", name_type(), nullable=False),
    Column("comparison_id", name_type(), ForeignKey("comparisons.id"), nullable=False),
    Column("slot", Integer, nullable=False),
    Column("purpose", String(12), nullable=False),
    Column("lease", String(64), nullable=False),
    Column("answer", String(8), one_of("answer", ANSWERS), nullable=False),
    Column("swapped", Boolean, nullable=False),
    Column("reasons", JsonText, nullable=False),  # a list of tags, of those that the owner offers
    Column("seconds", Double),  # from when the pair was shown until the answer, as the sender measured it
    Column("created_at", Double, nullable=False),
    Column("undone_at", Double),
    Index("submissions_of", "labeller", "run", "seq"),
    Index("submissions_about", "comparison_id", "labeller"),
    sqlite_autoincrement=True,
)

remarks = Table(
    "remarks",
    metadata,
    _number("seq"),
    Column("id", String(64), nullable=False, unique=True),
    Column("comparison_id", name_type(), ForeignKey("comparisons.id"), nullable=False, index=True),
    Column("labeller", name_type(), nullable=False),
    Column("kind", String(8), one_of("kind", ("note", "flag", "unflag")), nullable=False),
    Column("text", JsonText, nullable=False),
    Column("created_at", Double, nullable=False),
    sqlite_autoincrement=True,
)

checks = Table(
    "checks",
    metadata,
    Column("comparison_id", name_type(), ForeignKey("comparisons.id"), primary_key=True),
    Column("run", name_type(), nullable=False, index=True),
    Column("expected", String(3), one_of("expected", ("a", "b", "tie")), nullable=False),
)

opinions = Table(
    "opinions",
    metadata,
    _number("seq"),
    Column("comparison_id", name_type(), ForeignKey("comparisons.id"), nullable=False),
    Column("labeller", name_type(), nullable=False),
    Column("choice", String(3), one_of("choice", ("a", "b", "tie")), nullable=False),
    Column("created_at", Double, nullable=False),
    UniqueConstraint("comparison_id", "labeller"),
    sqlite_autoincrement=True,
)

weights = Table(
    "weights",
    metadata,
    _number("seq"),
    Column("run", name_type(), nullable=False, index=True),
    Column("labeller", name_type(), nullable=False),
    Column("weight", Double, nullable=False),
    Column("reasons", JsonText, nullable=False),
    Column("watermark", BigInteger, nullable=False),  # the newest label that was looked at
    Column("created_at", Double, nullable=False),
    sqlite_autoincrement=True,
)

requests = Table(
    "requests",
    metadata,
    _number("id"),
    Column("run", name_type(), nullable=False, index=True),
    Column("key", String(64), nullable=False, unique=True),  # chosen by the sender, as a submission's id
    Column("action", String(10), nullable=False),
    Column("arguments", JsonText, nullable=False),
    Column("reason", JsonText, nullable=False),
    Column("asked_by", name_type(), nullable=False),
    Column("asked_at", Double, nullable=False),
    Column("state", String(10), one_of("state", ("asked", "done", "refused", "withdrawn")), nullable=False),
    Column("outcome", JsonText),
    Column("settled_at", Double),
    sqlite_autoincrement=True,
)

make_append_only(remarks, ("seq",), ("id",))
make_append_only(opinions, ("seq",), ("comparison_id", "labeller"))
make_append_only(weights, ("seq",))


def create_tables(connection: Connection) -> None:
    """Every table that a new database has: comparisons and labels, and these."""
    metadata.create_all(connection)
