"""What must not happen to stored labels: change, deletion, loss in a crash or a race, mixing with others."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import DBAPIError

from holdfast.errors import HoldfastError
from holdfast.preferences.comparison import Choice, Comparison, Label, Provenance, Response
from holdfast.preferences.database import Database
from holdfast.preferences.schema import SCHEMA_VERSION
from holdfast.preferences.store import PreferenceStore


def comparison(key: str) -> Comparison:
    return Comparison(key, "q", *(Response(f"{key}{s}", Provenance("v", 0, 0)) for s in "ab"), round=0)


def filled(url: str, n: int = 1) -> PreferenceStore:
    store = PreferenceStore.open(url)
    store.add_comparisons([comparison(str(i)) for i in range(n)])
    store.add_labels([Label(str(i), "anna", Choice.A) for i in range(n)])
    return store


def sqlite_path(url: str) -> Path:
    return Path(make_url(url).database or "")


@pytest.mark.parametrize("table", ["labels", "comparisons", "responses"])
@pytest.mark.parametrize("statement", ["UPDATE {} SET {} = {}", "DELETE FROM {}", "TRUNCATE {} CASCADE"])
def test_the_database_itself_refuses_to_change_or_delete_rows(url, table, statement):
    if statement.startswith("TRUNCATE") and url.startswith("sqlite"):
        pytest.skip("SQLite has no TRUNCATE")
    column = "labeller" if table == "labels" else "round"
    with filled(url) as store:
        before = store.labelled()
        engine = create_engine(url)
        with pytest.raises(DBAPIError, match="append-only"), engine.begin() as connection:
            connection.execute(text(statement.format(table, column, column)))
        engine.dispose()
        assert store.labelled() == before


@pytest.mark.parametrize("table", ["labels", "comparisons", "responses"])
def test_sqlite_refuses_insert_or_replace(sqlite_url, table):
    with filled(sqlite_url) as store:
        before = store.labelled()
        with contextlib.closing(sqlite3.connect(sqlite_path(sqlite_url))) as raw:
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                raw.execute(f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}")
            raw.rollback()
        assert store.labelled() == before


def test_sqlite_is_set_up_for_durability(sqlite_url):
    database = Database(sqlite_url)
    with database.read() as connection:
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    database.close()
    assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}  # 2 is FULL


def run_in_threads(*targets):
    """Run all at the same time and raise the first error."""
    errors = []
    start = threading.Barrier(len(targets))

    def run(target):
        start.wait()
        try:
            target()
        except BaseException as error:  # noqa: BLE001 (it is raised below)
            errors.append(error)

    threads = [threading.Thread(target=run, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("shared", [True, False], ids=["one store", "two stores"])
def test_two_threads_adding_the_same_labels_store_each_once(url, shared):
    items = [comparison(str(i)) for i in range(25)]
    labels = [Label(item.id, "anna", choice) for item in items for choice in (Choice.A, Choice.B)]
    with PreferenceStore.open(url) as first, PreferenceStore.open(url) as other:
        new = {}

        def add(name, store, order):
            compared = sum(store.add_comparisons([item]) for item in items[::order])
            # One labeller's answers keep their order; the comparisons are taken from the two ends.
            pairs = [labels[i : i + 2] for i in range(0, len(labels), 2)][::order]
            new[name] = compared, sum(store.add_labels(pair) for pair in pairs)

        run_in_threads(lambda: add("first", first, 1), lambda: add("second", first if shared else other, -1))
        assert [sum(part) for part in zip(*new.values(), strict=True)] == [25, 50]
        counts = first.counts()
        assert (counts.comparisons, counts.labels) == (25, 50)
        assert {item.share_a for item in first.labelled()} == {0.0}


def test_two_threads_creating_one_store(url):
    stores = []
    run_in_threads(*[lambda: stores.append(PreferenceStore.open(url))] * 4)
    assert stores[0].add_comparisons([comparison("1")]) == 1
    assert [store.counts().comparisons for store in stores] == [1] * 4
    for store in stores:
        store.close()


CRASH = """
import os, signal, sys
from sqlalchemy import text
from holdfast.preferences.comparison import Choice, Label
from holdfast.preferences.store import PreferenceStore

store = PreferenceStore.open(sys.argv[1])
store.add_labels([Label("0", "ben", Choice.B)])
with store.database.write() as connection:
    connection.execute(text("INSERT INTO labels (comparison_id, labeller, choice, ordinal, created_at) "
                            "SELECT id, 'lost', 'b', 0, CURRENT_TIMESTAMP FROM comparisons"))
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_kill_in_mid_transaction_keeps_what_was_acknowledged_and_nothing_else(url):
    filled(url, 5).close()
    done = subprocess.run([sys.executable, "-c", CRASH, url], env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL
    with PreferenceStore.open(url) as store:
        assert [len(item.labels) for item in store.labelled()] == [2, 1, 1, 1, 1]
        assert store.counts().labels == 6
        # The dead process holds no lock.
        assert store.add_labels([Label("1", "ben", Choice.B)]) == 1


def test_a_writer_waits_its_turn_and_then_says_so(sqlite_url):
    first, second = Database(sqlite_url), Database(sqlite_url, wait_seconds=0.05)
    with first.write():
        with pytest.raises(HoldfastError, match="database is locked"), second.write():
            pass
        with second.read() as connection:  # readers do not wait
            assert connection.execute(text("SELECT count(*) FROM labels")).scalar() == 0
    with second.write():
        pass
    first.close()
    second.close()


def test_every_sqlite_write_holds_the_lock_file(sqlite_url):
    """SQLite's own lock does not keep a checkpoint in another process from meeting a write."""
    path = sqlite_path(sqlite_url)
    database = Database(sqlite_url)
    with contextlib.closing(sqlite3.connect(f"{path}.lock", timeout=0, isolation_level=None)) as lock:
        with database.write(), pytest.raises(sqlite3.OperationalError, match="locked"):
            lock.execute("BEGIN EXCLUSIVE")
        with database.read():
            lock.execute("BEGIN EXCLUSIVE")
            lock.execute("ROLLBACK")
    database.close()


def test_closing_does_not_fail_while_another_writes(sqlite_url):
    first, second = Database(sqlite_url), Database(sqlite_url, wait_seconds=0.05)
    with first.write():
        second.close()
    with pytest.raises(HoldfastError, match="is closed"), second.read():
        pass
    first.close()


def insert_and_fail(store: PreferenceStore) -> None:
    row = "('0', 'zoe', 'a', 0, CURRENT_TIMESTAMP)"
    with store.database.write() as connection:
        connection.execute(
            text(f"INSERT INTO labels (comparison_id, labeller, choice, ordinal, created_at) VALUES {row}")
        )
        raise RuntimeError


def test_an_error_in_a_write_leaves_nothing_behind(url):
    with filled(url) as store:
        with pytest.raises(RuntimeError):
            insert_and_fail(store)
        assert store.counts().labels == 1


def set_version(url: str, version: int) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE schema_version SET version = :version"), {"version": version})
    engine.dispose()


@pytest.mark.parametrize("version", [SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
def test_another_schema_is_refused(url, version):
    filled(url).close()
    set_version(url, version)
    message = f"has schema version {version} and this Holdfast reads version {SCHEMA_VERSION}"
    with pytest.raises(HoldfastError, match=message):
        PreferenceStore.open(url)


def test_a_schema_upgraded_under_an_open_store_stops_its_writes(url):
    with filled(url) as store:
        set_version(url, SCHEMA_VERSION + 1)
        with pytest.raises(HoldfastError, match=f"has schema version {SCHEMA_VERSION + 1}"):
            store.add_labels([Label("0", "ben", Choice.B)])
        set_version(url, SCHEMA_VERSION)
        assert store.counts().labels == 1


@pytest.mark.parametrize(
    "table",
    [
        "users (name TEXT)",
        "labels (seq INTEGER)",
        "schema_version (installed_rank INTEGER, version INTEGER)",
        "schema_version (application TEXT, version INTEGER)",
    ],
)
def test_the_database_of_another_program_is_refused_and_left_alone(url, table):
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE TABLE {table}"))
    engine.dispose()
    before = sqlite_path(url).read_bytes() if url.startswith("sqlite") else b""
    with pytest.raises(HoldfastError, match="holds another program's tables"):
        PreferenceStore.open(url)
    if url.startswith("sqlite"):
        assert sqlite_path(url).read_bytes() == before
    with engine.connect() as connection:
        assert connection.execute(text(f"SELECT count(*) FROM {table.split()[0]}")).scalar() == 0
    engine.dispose()


def test_a_file_that_is_no_database_is_refused(sqlite_url):
    sqlite_path(sqlite_url).write_bytes(b"not a database, but long enough to have a header" * 10)
    with pytest.raises(HoldfastError, match="not a database"):
        PreferenceStore.open(sqlite_url)


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ("runs/run.db", "needs a database URL such as sqlite:///"),
        ("", "needs a database URL"),
        ("nosuchdatabase://host/name", "No driver for a nosuchdatabase database"),
        ("sqlite:////nowhere/at/all/run.db", "a directory that exists"),
        ("sqlite:////", "a directory that exists"),
        ("sqlite:///file:run.db?uri=true", "plain path"),
        ("postgresql://user:secret@127.0.0.1:1/none", "postgres"),
    ],
)
def test_a_bad_url_gives_one_sentence_without_the_password(bad, sentence):
    with pytest.raises(HoldfastError, match=sentence) as caught:
        PreferenceStore.open(bad)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_closed_store_says_so(sqlite_url):
    store = filled(sqlite_url)
    store.close()
    store.close()
    with pytest.raises(HoldfastError, match="is closed"):
        store.watermark()


def test_a_store_in_memory():
    with filled("sqlite://") as store:
        assert store.counts().labels == 1


def test_garbage_in_place_of_the_lock_is_said(tmp_path):
    (tmp_path / "run.db.lock").write_text("not a database, and long enough to be read as one" * 40)
    with pytest.raises(HoldfastError, match=r"run\.db\.lock is not the lock of a preference store; remove it"):
        PreferenceStore.open(f"sqlite:///{tmp_path}/run.db")
    assert not (tmp_path / "run.db").exists()


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path):
    (tmp_path / "run.db.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HoldfastError, match=r"run\.db\.lock is a link.*remove it"):
        PreferenceStore.open(f"sqlite:///{tmp_path / 'run.db'}")
    assert not (tmp_path / "elsewhere").exists()
