"""Tests that lack what they need are skipped with a sentence, and where nothing may be skipped they fail."""

import pytest

import servers


def test_a_skip_is_loud(monkeypatch):
    monkeypatch.setattr(servers, "ON_CI", False)
    with pytest.raises(pytest.skip.Exception, match="Chromium is not on this machine"):
        servers.absent("Chromium")


def test_on_ci_a_skip_is_a_failure(monkeypatch):
    monkeypatch.setattr(servers, "ON_CI", True)
    with pytest.raises(pytest.fail.Exception, match="nothing may be skipped"):
        servers.absent("PostgreSQL")
