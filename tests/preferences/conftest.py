"""An empty database of each kind. PostgreSQL is used where HOLDFAST_TEST_POSTGRES holds the URL of one."""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'run.db'}"


@pytest.fixture
def postgres_url() -> Iterator[str]:
    given = os.environ.get("HOLDFAST_TEST_POSTGRES")
    if not given:
        pytest.skip("HOLDFAST_TEST_POSTGRES is not set")
    # A schema of its own makes a fresh database for each test out of one server database.
    url = make_url(given).set(drivername="postgresql+psycopg")
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
