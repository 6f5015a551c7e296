"""The unbroken run that whole-run tests are held against."""

from __future__ import annotations

from pathlib import Path

import pytest

import small_run


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of a small run that nothing happened to; only to be read."""
    return small_run.run(tmp_path_factory.mktemp("unbroken"))


@pytest.fixture(scope="session")
def unbroken_result(unbroken: Path) -> dict[str, object]:
    return small_run.result_of(unbroken)
