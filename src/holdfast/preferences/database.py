"""The database under the preference store: opening, creating, refusing and taking turns to write."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    StaticPool,
    create_engine,
    event,
    insert,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import ArgumentError, SQLAlchemyError, StatementError

from holdfast.errors import HoldfastError
from holdfast.preferences.people_schema import create_tables
from holdfast.preferences.schema import APPLICATION, SCHEMA_VERSION, schema_version

_WAIT_SECONDS = 30.0
_CACHE_BYTES = 64 << 20
_LOG_PAGES = 8192  # 32 MiB of write-ahead log at SQLite's page size
_CREATION_LOCK = 0x686F6C64  # any number will do that is the same for all who open a PostgreSQL database


def check_url(url: str) -> None:
    """Refuse a URL that names no database this machine has a driver for; nothing is opened or made."""
    _create_engine(_parse_url(url), _WAIT_SECONDS).dispose()


class Database:
    """One database that holds our tables, with `read()` and `write()` transactions for several threads.

    SQLite gets one connection per `Database`. Its releases before 3.51.3 can corrupt a file in write-ahead
    mode when two connections write and checkpoint at once, so every write also holds a lock file beside it.
    On a server, writers queue for the row of `schema_version` instead.
    """

    def __init__(self, url: str, wait_seconds: float = _WAIT_SECONDS, create: bool = True) -> None:
        parsed = _parse_url(url)
        self.name = parsed.set(query={}).render_as_string(hide_password=True)
        self._create = create
        if not create and parsed.get_backend_name() == "sqlite" and not Path(parsed.database or "").is_file():
            self._refuse_lost()
        self._guard = threading.Lock()
        self._closed = False
        self._engine = _create_engine(parsed, wait_seconds)
        self._turn: sqlite3.Connection | None = None
        if parsed.get_backend_name() == "sqlite" and not _in_memory(parsed):
            self._turn = _open_lock_file(Path(parsed.database or ""), wait_seconds)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the database. Closing twice is allowed."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            if self._turn is not None:
                # Closing the last connection writes SQLite's log into the database, so it takes its turn. If
                # none comes, another writer has the database open, and ours is not the last.
                with suppress(sqlite3.OperationalError):
                    self._turn.execute("BEGIN EXCLUSIVE")
            self._engine.dispose()
            if self._turn is not None:
                self._turn.close()

    def check_pages(self) -> None:
        """Refuse a SQLite file with a damaged page or index: reading on would give other labels, or fewer."""
        if self._turn is None:
            return
        with self.read() as connection:
            verdict = " ".join(str(connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()).split())
        if verdict != "ok":
            raise HoldfastError(
                f"The database {self.name} is damaged ({verdict}); bring back a copy of it that belongs to this run."
            )

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that only reads."""
        with self._reporting(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that is alone in writing and commits at the end, or not at all.

        The version is read each time, in case another release has changed the database since it was opened.
        """
        engine = self._engine.execution_options(holdfast_write=True)
        with self._reporting(), self._taking_turns(), engine.begin() as connection:
            self._check_version(_stored_version(connection, lock=True))
            yield connection

    def _prepare(self) -> None:
        """Refuse a database that is not ours before changing anything in it, then create what is missing."""
        with self.read() as connection:
            if not self._is_ours(connection) and not self._create:
                self._refuse_lost()
        if self._turn is not None:
            self._use_write_ahead_log()
        engine = self._engine.execution_options(holdfast_write=True)
        with self._reporting(), self._taking_turns(), engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _CREATION_LOCK})
            if not self._is_ours(connection):
                create_tables(connection)
                stamp = {"application": APPLICATION, "version": SCHEMA_VERSION}
                connection.execute(insert(schema_version), stamp)

    def _is_ours(self, connection: Connection) -> bool:
        """Whether our tables are there; False if there are none, an error for others and those of another version."""
        inspector = inspect(connection)
        tables = inspector.get_table_names()
        if not tables:
            return False
        version = None
        if schema_version.name in tables:
            columns = {column["name"] for column in inspector.get_columns(schema_version.name)}
            if columns == set(schema_version.c.keys()):
                version = _stored_version(connection)
        if version is None:
            raise HoldfastError(
                f"The database {self.name} holds another program's tables; give Holdfast one of its own."
            )
        self._check_version(version)
        return True

    def _refuse_lost(self) -> NoReturn:
        raise HoldfastError(
            f"The database {self.name} is missing or empty, and the labels of this run are in it; bring it back."
        )

    def _check_version(self, version: int | None) -> None:
        if version != SCHEMA_VERSION:
            raise HoldfastError(
                f"The preference store {self.name} has schema version {version} and this Holdfast reads "
                f"version {SCHEMA_VERSION}; use the release of Holdfast that wrote it."
            )

    def _use_write_ahead_log(self) -> None:
        with self._reporting(), self._taking_turns():
            # Past SQLAlchemy's transactions, because SQLite changes the journal only outside of one.
            raw = self._engine.raw_connection()
            try:
                cursor = raw.cursor()
                cursor.execute("PRAGMA journal_mode = WAL")
                mode = cursor.fetchone()
            finally:
                raw.close()
        if mode != ("wal",):
            raise HoldfastError(f"The file system of {self.name} cannot hold a write-ahead log; use a local disk.")

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """One thread at a time, and the database's errors as a sentence."""
        with self._guard:
            if self._closed:
                raise HoldfastError(f"The preference store {self.name} is closed; open it again to use it.")
            try:
                yield
            except (SQLAlchemyError, sqlite3.Error) as error:
                cause = error.orig if isinstance(error, StatementError) else error
                if isinstance(cause, HoldfastError):  # a text that no column can hold
                    raise cause from None
                reason = " ".join(str(cause).split())
                raise HoldfastError(
                    f"The preference store {self.name} could not be used ({reason}); check the database "
                    "and its disk, then try again."
                ) from error

    @contextmanager
    def _taking_turns(self) -> Iterator[None]:
        """Keep other processes, and other stores in this one, from writing to the same SQLite file."""
        if self._turn is None:
            yield
            return
        self._turn.execute("BEGIN EXCLUSIVE")
        try:
            yield
        finally:
            self._turn.execute("ROLLBACK")


def _stored_version(connection: Connection, lock: bool = False) -> int | None:
    """The version of our tables; with `lock`, a server lets one writer at a time past this point."""
    query = select(schema_version.c.version).where(schema_version.c.application == APPLICATION)
    if lock:
        query = query.with_for_update()
    return connection.execute(query).scalar_one_or_none()


def _in_memory(url: URL) -> bool:
    return url.database in (None, "", ":memory:")


def _parse_url(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise HoldfastError(
            "The preference store needs a database URL such as sqlite:///runs/demo/run.db or "
            "postgresql://user@host/name."
        ) from error
    if parsed.drivername in ("postgres", "postgresql"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() == "sqlite" and not _in_memory(parsed):
        path = Path(parsed.database or "")
        if str(path).startswith("file:"):
            raise HoldfastError("Give the SQLite database as a plain path, sqlite:///path, without file: in it.")
        if path.is_dir() or not path.parent.is_dir():
            raise HoldfastError(f"There is no place for a database at {path}; name a file in a directory that exists.")
    return parsed


def _create_engine(url: URL, wait_seconds: float) -> Engine:
    try:
        if url.get_backend_name() != "sqlite":
            return create_engine(url, pool_pre_ping=True)
        wait = {"check_same_thread": False, "timeout": wait_seconds}
        engine = create_engine(url, poolclass=StaticPool, connect_args=wait)
    except (ArgumentError, ModuleNotFoundError) as error:
        hint = "pip install 'holdfast-rl[postgres]'" if url.get_backend_name() == "postgresql" else "its driver"
        raise HoldfastError(f"No driver for a {url.drivername} database is installed; install {hint}.") from error
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None  # leave BEGIN to us; sqlite3 would begin late and without the lock
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    # Responses are keyed by a hash, so adding to a large store touches pages all over it. They are kept at hand, and
    # written back together after several batches instead of each time.
    connection.execute(f"PRAGMA cache_size = -{_CACHE_BYTES // 1024}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")


def _begin_sqlite(connection: Connection) -> None:
    # A reader that turns into a writer can fail at once with "database is locked", so a writer begins as one.
    write = connection.get_execution_options().get("holdfast_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _open_lock_file(database: Path, wait_seconds: float) -> sqlite3.Connection:
    """A lock that the operating system frees when its holder dies: SQLite's own, on an empty file."""
    path = database.with_name(database.name + ".lock")
    if path.is_symlink():  # whoever made the directory would have another file written to
        raise HoldfastError(f"{path} is a link, not the lock of a preference store; remove it.")
    try:
        lock = sqlite3.connect(path, timeout=wait_seconds, isolation_level=None, check_same_thread=False)
        lock.execute("PRAGMA schema_version")  # reads the file, which may be anything
        return lock
    except sqlite3.DatabaseError as error:
        if "not a database" in str(error):
            raise HoldfastError(f"{path} is not the lock of a preference store; remove it.") from error
        raise HoldfastError(
            f"Cannot open {path} ({error}); the directory of a preference store must be writable."
        ) from error
