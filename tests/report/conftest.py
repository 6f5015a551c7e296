"""Real runs to report on, a few seconds each, made once for all tests."""

from __future__ import annotations

from pathlib import Path

import moods
import pytest

import nostalgic
import small_run
from holdfast.cli.main import main


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five rounds: the third is found hacked and undone, refreshes are refused, and it ends well."""
    return small_run.run(
        tmp_path_factory.mktemp("guarded"), world__labeller=moods.SPEC, audit__pairs="12", run__rounds="5"
    )


@pytest.fixture(scope="session")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """People like no policy after the first: one rollback does not cure it, and the guard stops to ask in round 3."""
    runs = tmp_path_factory.mktemp("stopped")
    changes = {"world__labeller": nostalgic.SPEC, "audit__pairs": "12", "guard__rollbacks": "1"}
    assert main(small_run.run_arguments(runs, **changes)) == 3
    return runs / small_run.NAME


@pytest.fixture(scope="session")
def advised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a guard that only says what it would do, and an ensemble that claims what nobody grants."""
    changes = {"world__labeller": nostalgic.SPEC, "audit__pairs": "12", "guard__mode": "advise"}
    with pytest.MonkeyPatch.context() as patch:
        small_run.claiming(patch, 0.7)
        return small_run.run(tmp_path_factory.mktemp("advised"), **changes)


@pytest.fixture(scope="session")
def unguarded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three rounds without a guard."""
    return small_run.run(tmp_path_factory.mktemp("unguarded"), guard__mode="off")
