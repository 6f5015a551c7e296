"""More rounds for a run that has finished or was taken back, and those that a rollback has undone."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import small_run
from holdfast.checkpoint.store import CheckpointStore
from holdfast.checkpoint.transaction import state_of
from holdfast.cli.main import main
from holdfast.preferences.store import PreferenceStore
from holdfast.run.demand import RoundsDone, done_of, label_demand
from holdfast.run.directory import RunDirectory
from holdfast.run.inspection import inspect_run
from small_run import differences, events_of, result_of, tree_of

# Without a guard no round is treated as the last one; the learning rate of the small run has no end to decay to.
UNGUARDED = {"guard__mode": "off"}


def test_an_extended_run_equals_one_that_was_begun_with_as_many_rounds(tmp_path: Path) -> None:
    whole = small_run.run(tmp_path / "whole", **UNGUARDED)
    run = small_run.run(tmp_path, run__rounds="2", **UNGUARDED)
    assert main(["resume", str(run), "--rounds", "3"]) == 0
    assert differences(result_of(run), result_of(whole)) == []
    assert (run / "config.toml").read_text() == (whole / "config.toml").read_text()
    (event,) = events_of(run, "setting_changed")
    assert (event["name"], event["before"], event["after"]) == ("run.rounds", "2", "3")
    assert len(events_of(run, "run_finished")) == 1


def test_a_finished_run_says_so_and_how_it_goes_on(
    unbroken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(unbroken, tmp_path / small_run.NAME))
    assert main(["resume", str(run)]) == 0
    assert f"The run has finished; `holdfast resume {run} --rounds N` goes on to N rounds" in capsys.readouterr().err


def test_fewer_rounds_than_are_done_are_refused(
    unbroken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(unbroken, tmp_path / small_run.NAME))
    before = tree_of(run)
    assert main(["resume", str(run), "--rounds", "2"]) == 2
    assert "has done 3 rounds, so it cannot have 2 in all" in capsys.readouterr().err
    assert tree_of(run) == before


def test_a_rollback_that_waits_is_told_and_the_policy_that_it_undoes_is_not_exported(
    unbroken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(unbroken, tmp_path / small_run.NAME))
    words = "rollback to round-0002 is waiting"
    assert main(["rollback", str(run), "round-0002"]) == 0
    before = tree_of(run)
    capsys.readouterr()
    assert main(["export", str(run), str(tmp_path / "out")]) == 2
    assert f"A rollback of {run} to round-0002 is waiting" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert main(["report", str(run), "--out", str(tmp_path / "report.html")]) == 0
    assert words in (tmp_path / "report.html").read_text()
    (found,) = [found for found in inspect_run(run) if found.what == "rollback"]
    assert found.state == "note"
    assert found.detail.startswith("to round-0002 is waiting")
    assert tree_of(run) == before
    assert main(["export", str(run), str(tmp_path / "named"), "--checkpoint", "round-0002"]) == 0

    assert main(["resume", str(run)]) == 0
    assert words not in (run / "report.html").read_text()
    assert [found for found in inspect_run(run) if found.what == "rollback"] == []
    assert main(["export", str(run), str(tmp_path / "out")]) == 0


def test_a_rollback_that_waits_comes_before_the_forecast_and_the_count_of_rounds(
    unbroken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(unbroken, tmp_path / small_run.NAME))
    assert label_demand(RunDirectory.open(run).config(), done=done_of(RunDirectory.open(run))) is None
    assert main(["rollback", str(run), "round-0001"]) == 0
    assert done_of(RunDirectory.open(run)) == RoundsDone(prepared=True, rounds=1)
    before = asked(run)
    assert main(["resume", str(run), "--rounds", "2"]) == 0  # of the three only one still counts
    said = capsys.readouterr().err
    forecast = said[said.index("Comparisons that this run will still ask for") : said.index("ROLLED BACK")]
    assert "  the last round  " in forecast
    least, most = re.findall(r"[\d,]+", forecast[forecast.index("  in all ") :])[:2]
    assert int(least) <= asked(run) - before <= int(most)
    assert "2 rounds in all and not 3, those that were taken back not counted" in " ".join(said.split())
    assert [event["round"] for event in events_of(run, "round_finished")] == [1, 2, 3, 4]


def asked(run: Path) -> int:
    with PreferenceStore.open(f"sqlite:///{run / 'run.db'}") as store:
        return sum(1 for _ in store.each_labelled())


def test_a_rollback_frees_the_rounds_that_it_undid(tmp_path: Path) -> None:
    run = small_run.run(tmp_path, checkpoint__keep="9", **UNGUARDED)
    for _ in range(2):  # the second time the rounds that the first one undid are not counted again
        assert main(["rollback", str(run), "round-0001"]) == 0
        assert main(["resume", str(run)]) == 0
    assert [event["round"] for event in events_of(run, "round_finished")] == [1, 2, 3, 4, 5, 6, 7]
    store = CheckpointStore(run / "checkpoints")
    at = state_of(store.load(store.names()[-1]), "position")
    assert (at["round"], at["freed"], at["step"]) == (8, 4, 14)
    assert main(["resume", str(run), "--rounds", "4"]) == 0
    assert [event["round"] for event in events_of(run, "round_finished")][-1] == 8
