"""A database of an earlier release, with data in it, is upgraded whole; its tables stand here as they were."""

import pytest
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.exc import DBAPIError

from holdfast.errors import HoldfastError
from holdfast.preferences import Choice, Comparison, Label, Provenance, Response
from holdfast.preferences.database import Database
from holdfast.preferences.migrations import OLDEST
from holdfast.preferences.people_schema import PEOPLE_TABLES
from holdfast.preferences.schema import metadata
from holdfast.preferences.store import PreferenceStore

VERSION_1 = """
CREATE TABLE schema_version (application VARCHAR(200) NOT NULL PRIMARY KEY, version INTEGER NOT NULL);
CREATE TABLE responses (
  id VARCHAR(200) NOT NULL PRIMARY KEY, text TEXT NOT NULL, policy_version TEXT NOT NULL, round INTEGER NOT NULL,
  seed TEXT NOT NULL, token_ids TEXT, finished BOOLEAN NOT NULL);
CREATE TABLE comparisons (
  id VARCHAR(200) NOT NULL PRIMARY KEY, prompt TEXT NOT NULL, a VARCHAR(200) NOT NULL REFERENCES responses (id),
  b VARCHAR(200) NOT NULL REFERENCES responses (id), round INTEGER NOT NULL);
CREATE INDEX ix_comparisons_round ON comparisons (round);
CREATE TABLE labels (
  seq {serial}, comparison_id VARCHAR(200) NOT NULL REFERENCES comparisons (id), labeller VARCHAR(200) NOT NULL,
  choice VARCHAR(3) NOT NULL CHECK (choice IN ('a', 'b', 'tie')), ordinal INTEGER NOT NULL,
  created_at {moment} NOT NULL, UNIQUE (comparison_id, labeller, ordinal));
INSERT INTO schema_version VALUES ('holdfast-preferences', 1);
INSERT INTO responses VALUES ('r1', '"one\\u0000"', 'v', 0, '7', '[1, 2]', {yes});
INSERT INTO responses VALUES ('r2', '"two"', 'v', 0, '7', NULL, {yes});
INSERT INTO comparisons VALUES ('run/1', '"q"', 'r1', 'r2', 0), ('run/2', '"q"', 'r2', 'r1', 1);
"""
ROWS = (("run/1", "anna", "a", 0), ("run/1", "ben", "tie", 0), ("run/1", "anna", "b", 1), ("run/2", "anna", "a", 0))
REFUSE = "BEGIN SELECT RAISE(ABORT, 'labels are append-only'); END"


def old_database(url: str) -> None:
    """Version 1 with two comparisons and four labels, one of which replaces another."""
    lite = url.startswith("sqlite")
    serial = "INTEGER PRIMARY KEY AUTOINCREMENT" if lite else "BIGSERIAL PRIMARY KEY"
    moment, yes = ("DATETIME", "1") if lite else ("TIMESTAMP WITH TIME ZONE", "true")
    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in VERSION_1.format(serial=serial, moment=moment, yes=yes).split(";"):
            if statement.strip():
                connection.exec_driver_sql(statement)
        for row in ROWS:
            connection.exec_driver_sql(
                "INSERT INTO labels (comparison_id, labeller, choice, ordinal, created_at) "
                f"VALUES ('{row[0]}', '{row[1]}', '{row[2]}', {row[3]}, '2026-01-02 03:04:05.000000')"
            )
        if lite:
            for verb in ("UPDATE", "DELETE"):
                name = f"labels_no_{verb.lower()}"
                connection.exec_driver_sql(f"CREATE TRIGGER {name} BEFORE {verb} ON labels {REFUSE}")
        else:
            connection.exec_driver_sql(
                "CREATE FUNCTION holdfast_append_only() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE EXCEPTION 'labels are append-only'; END $$"
            )
            connection.exec_driver_sql(
                "CREATE TRIGGER labels_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON labels "
                "FOR EACH STATEMENT EXECUTE FUNCTION holdfast_append_only()"
            )
    engine.dispose()


def test_an_older_database_is_upgraded_with_all_it_holds(url):
    old_database(url)
    with PreferenceStore.open(url) as store:
        one, other = Response("one\0", Provenance("v", 0, 7), (1, 2)), Response("two", Provenance("v", 0, 7))
        assert [item.comparison for item in store.labelled()] == [
            Comparison("run/1", "q", one, other, 0),
            Comparison("run/2", "q", other, one, 1),
        ]
        assert store.labelled()[0].labels == (Label("run/1", "anna", Choice.B), Label("run/1", "ben", Choice.TIE))
        assert store.watermark() == 4
        # It is at work again: numbers go on after the old ones, and an answer can be added.
        assert store.add_labels([Label("run/2", "ben", Choice.B)]) == 1
        assert store.watermark() == 5
    with PreferenceStore.open(url) as again:
        assert again.counts().labels == 5


def test_an_upgraded_database_has_every_table_and_column_of_a_new_one(url):
    old_database(url)
    Database(url).close()
    engine = create_engine(url)
    found = inspect(engine)
    assert {name: {c["name"] for c in found.get_columns(name)} for name in metadata.tables} == {
        name: set(table.c.keys()) for name, table in metadata.tables.items()
    }
    assert "labels_before" not in found.get_table_names()
    engine.dispose()


def test_the_labels_of_an_upgraded_database_cannot_be_changed_either(url):
    old_database(url)
    Database(url).close()
    engine = create_engine(url)
    for statement in ("UPDATE labels SET choice = 'b'", "DELETE FROM labels"):
        with pytest.raises(DBAPIError, match="append-only"), engine.begin() as connection:
            connection.execute(text(statement))
    engine.dispose()


def test_an_upgrade_that_fails_leaves_the_old_database(url, monkeypatch):
    old_database(url)
    monkeypatch.setattr(PEOPLE_TABLES[-1], "dispatch", None)
    with pytest.raises(Exception):  # noqa: B017 (whatever the broken table raises)
        Database(url)
    monkeypatch.undo()
    engine = create_engine(url)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT version FROM schema_version")).scalar() == OLDEST
        assert connection.execute(text("SELECT count(*) FROM labels")).scalar() == len(ROWS)
        assert "queue" not in inspect(connection).get_table_names()
    engine.dispose()
    with PreferenceStore.open(url) as store:
        assert store.counts().labels == len(ROWS)


def test_a_version_from_before_all_versions_is_refused(url):
    old_database(url)
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE schema_version SET version = 0"))
    engine.dispose()
    with pytest.raises(HoldfastError, match="has schema version 0"):
        Database(url)
