"""The databases that the tests of stores use."""

from databases import postgres_server, postgres_url, sqlite_url, url

__all__ = ["postgres_server", "postgres_url", "sqlite_url", "url"]
