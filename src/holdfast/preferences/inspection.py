"""Looking into a SQLite preference store without changing a byte in its directory.

A plain connection would make the file where it is missing, and lock files and a log beside it where it is not. So the
file is read as one that nobody writes to; where a log has yet to be folded in, a copy of both is read.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote

from holdfast.errors import HoldfastError
from holdfast.preferences.encoding import content_hash
from holdfast.preferences.label_seal import SEALED, LabelSeal
from holdfast.preferences.schema import APPLICATION, SCHEMA_VERSION
from holdfast.preferences.store import StoreCounts

_TRAINED_ON = "SELECT id, text, policy_version, round, seed, token_ids, finished FROM responses"


def inspect_database(path: Path, watermark: int, sealed: str) -> StoreCounts:
    """How much a sound store holds; refuses one that is damaged, or lacks labels that a checkpoint knows of.

    `sealed` is the SHA-256 of the labels up to the watermark; empty where there is no such checkpoint.
    """
    lost = "bring back the database that belongs to this run."
    if not path.is_file() or path.stat().st_size == 0:
        raise HoldfastError(f"{path} is {'empty' if path.is_file() else 'missing'}, and the labels are in it; {lost}")
    try:
        with _reading(path) as connection:
            _check_pages(connection, path, lost)
            _check_version(connection, path)
            _check_responses(connection, path, lost)
            seal = LabelSeal()
            seal.take(partial(connection.execute, SEALED), watermark)
            (newest,) = connection.execute("SELECT coalesce(max(seq), 0) FROM labels").fetchone()
            counts = [connection.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in ("comparisons", "labels")]
    except (sqlite3.Error, ValueError) as error:
        raise HoldfastError(f"{path} is damaged ({error}); {lost}") from error
    if newest < watermark:
        raise HoldfastError(f"{path} holds labels up to {newest}, and the newest checkpoint knows {watermark}; {lost}")
    if sealed and seal.sha256 != sealed:
        raise HoldfastError(
            f"{path} holds other labels than the newest checkpoint was made with: they, or what they answer, were "
            f"changed; {lost}"
        )
    return StoreCounts(*counts)


def rollback_waiting(path: Path, run: str, after: int) -> str | None:
    """The checkpoint that the newest request to a run names that asks for a rollback and was neither done nor settled.

    `after` is the newest request that the run has carried out. None too where nothing can be read.
    """
    asked = "action = 'rollback' AND state = 'asked' AND run = ? AND id > ? ORDER BY id DESC LIMIT 1"
    try:
        with _reading(path) as connection:
            row = connection.execute(f"SELECT arguments FROM requests WHERE {asked}", (run, after)).fetchone()
        return None if row is None else str(json.loads(row[0])["checkpoint"])
    except (sqlite3.Error, OSError, ValueError, LookupError, TypeError):
        return None


def inspect_lock(database: Path) -> None:
    """Refuse a lock file beside a store that is none, and files of SQLite's own that are not files."""
    for suffix in ("-wal", "-shm", ".lock"):
        path = database.with_name(database.name + suffix)
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise HoldfastError(f"{path} is not a plain file; remove it.")
    # SQLite takes a file of one byte for an empty one.
    if path.is_file() and path.stat().st_size > 1 and not path.read_bytes().startswith(b"SQLite format 3\0"):
        raise HoldfastError(f"{path} is not the lock of a preference store; remove it.")


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    log = path.with_name(path.name + "-wal")
    if not log.is_file() or log.stat().st_size == 0:
        with closing(sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1", uri=True)) as connection:
            yield connection
        return
    with tempfile.TemporaryDirectory() as scratch:
        for file in (path, log):
            shutil.copyfile(file, Path(scratch) / file.name)
        with closing(sqlite3.connect(Path(scratch) / path.name)) as connection:
            yield connection


def _check_pages(connection: sqlite3.Connection, path: Path, lost: str) -> None:
    (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if verdict != "ok" or connection.execute("PRAGMA foreign_key_check").fetchone() is not None:
        reason = " ".join(str(verdict).split()) if verdict != "ok" else "a row refers to one that is not there"
        raise HoldfastError(f"{path} is damaged ({reason}); {lost}")


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    row = connection.execute("SELECT version FROM schema_version WHERE application = ?", (APPLICATION,)).fetchone()
    if row != (SCHEMA_VERSION,):
        raise HoldfastError(f"{path} is not a preference store of this version of Holdfast; give the one of this run.")


def _check_responses(connection: sqlite3.Connection, path: Path, lost: str) -> None:
    """Answers are stored under the hash of what they are."""
    for key, text, policy_version, number, seed, tokens, finished in connection.execute(_TRAINED_ON):
        content = [json.loads(text), policy_version, number, json.loads(seed), tokens and json.loads(tokens)]
        if content_hash([*content, bool(finished)]) != key:
            raise HoldfastError(f"{path} is damaged (the answer {key[:12]} is not what was stored); {lost}")
