"""A site of a run for the tests of pages: its database of each kind, people with sessions, pairs to answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import web_site
from databases import postgres_server, postgres_url, sqlite_url, url
from visits import browser

__all__ = ["browser", "postgres_server", "postgres_url", "site", "sqlite_site", "sqlite_url", "url"]


@pytest.fixture
def site(url: str, tmp_path: Path) -> Iterator[web_site.TestSite]:
    """On SQLite and on PostgreSQL."""
    with web_site.opened(tmp_path / "run", url) as opened:
        yield opened


@pytest.fixture
def sqlite_site(sqlite_url: str, tmp_path: Path) -> Iterator[web_site.TestSite]:
    with web_site.opened(tmp_path / "run", sqlite_url) as opened:
        yield opened
