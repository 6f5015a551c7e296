"""An empty database of each kind, as fixtures: SQLite in a file, and PostgreSQL on a server that the tests start.

HOLDFAST_TEST_POSTGRES may hold the URL of a server that is there already.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

import servers


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'run.db'}"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    if given := os.environ.get("HOLDFAST_TEST_POSTGRES"):
        yield given
        return
    with servers.postgres() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    # A schema of its own makes a fresh database for each test out of one server database.
    url = make_url(postgres_server).set(drivername="postgresql+psycopg")
    name = f"holdfast_test_{secrets.token_hex(4)}"
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {name}"))
    yield url.update_query_dict({"options": f"-csearch_path={name}"}).render_as_string(hide_password=False)
    with engine.begin() as connection:
        connection.execute(text(f"DROP SCHEMA {name} CASCADE"))
    engine.dispose()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    database: str = request.getfixturevalue(f"{request.param}_url")
    return database
