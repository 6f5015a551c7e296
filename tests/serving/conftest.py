"""One small run, whose ensemble all tests of this directory have served."""

from pathlib import Path

import pytest

import small_run


@pytest.fixture(scope="session")
def rewarded_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with versions 1 to 3 of its ensemble, all in use at some time."""
    return small_run.run(tmp_path_factory.mktemp("served"), gate__use="false")
