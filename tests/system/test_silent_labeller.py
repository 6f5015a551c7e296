"""A labeller that leaves comparisons unanswered: everybody who reads of the run is told how many."""

from __future__ import annotations

from pathlib import Path

import pytest

import small_run
import taciturn
from holdfast.cli.main import main
from holdfast.report.data import read_run
from holdfast.report.rounds import summary
from holdfast.web.dashboard import time_line


def said(capfd: pytest.CaptureFixture[str]) -> str:
    heard = capfd.readouterr()
    return " ".join((heard.err + heard.out).split())


def test_a_labeller_that_falls_silent_is_told_everywhere(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = small_run.run(tmp_path, world__labeller=taciturn.SILENT, gate__repeats="0")
    heard = said(capfd)
    asked = small_run.events_of(run, "audit")[-1]["asked"]
    assert f"no audit: {asked} asked, none answered" in heard
    assert "0 of 8 comparisons answered by silent (round 2)" in heard
    assert f"preferred to reference {asked} asked, none answered" in heard
    assert "nobody was asked" not in heard
    assert "verdict unaudited; no rollback" in heard
    everything = small_run.events_of(run, "labels_asked")
    unanswered = sum(row["comparisons"] for row in everything) - int(small_run.SETTINGS["reward.initial_comparisons"])
    assert f"{unanswered} comparisons left unanswered" in heard
    assert "0 of 8 comparisons answered by silent (round 2)" in (run / "report.html").read_text()
    assert "0 of 8 comparisons answered by silent (round 2)." in [entry.text for entry in time_line(read_run(run))]
    guard = summary(read_run(run))
    assert guard is not None
    assert guard.verdict == "unaudited"
    assert main(["export", str(run), str(tmp_path / "policy")]) == 0
    assert f"{asked} comparisons of this policy were asked, and none was answered." in (
        tmp_path / "policy" / "README.md"
    ).read_text(encoding="utf-8")


def test_a_labeller_that_answers_half_is_told_with_both_numbers(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    small_run.run(tmp_path, world__labeller=taciturn.HALF, gate__repeats="0")
    heard = said(capfd)
    assert "4 of 8 comparisons answered by half (round 2)" in heard
    assert "comparisons left unanswered" in heard


def test_of_one_that_answers_everything_nothing_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = small_run.run(tmp_path)
    assert small_run.events_of(run, "labels_missing") == []
    assert "unanswered" not in said(capfd)
