"""One small run, whose ensemble all tests of this directory have served."""

from pathlib import Path

import pytest

import small_run


@pytest.fixture(scope="session")
def rewarded_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that has accepted versions 1 to 3 of its ensemble, and has ended with the last."""
    return small_run.run(tmp_path_factory.mktemp("served"), gate__use="false", guard__mode="off")
