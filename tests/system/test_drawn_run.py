"""A run of a world whose answers are drawn: in its manifest, its report, and where a terminal prints them."""

import json
from pathlib import Path

import pytest

import boxed
import small_run
from holdfast.cli.main import main
from holdfast.drawings.registry import drawing_of
from holdfast.report.page import write_report

pytestmark = pytest.mark.slow
WORLD = {"world__name": boxed.SPEC, "world__options": "{}"}


def test_the_manifest_keeps_the_drawing_and_the_report_shows_it(tmp_path: Path) -> None:
    run = small_run.run(tmp_path, **WORLD, run__rounds="1")
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["drawing"] == drawing_of(manifest) == "boxes"
    row = json.loads((run / "samples.jsonl").read_text().splitlines()[-1])
    with (run / "samples.jsonl").open("a") as samples:
        samples.write(json.dumps({**row, "response": boxed.ANSWER}) + "\n")
    page = write_report(run).read_text()
    assert 'aria-label="1 box on a grid 12 wide and 16 high: title 12 by 2 at 0,0."' in page
    assert "It cannot be drawn: " in page  # what so small a model says

    again = small_run.run(tmp_path / "off", **WORLD, run__rounds="1", world__drawing="none")
    assert "drawing" not in json.loads((again / "manifest.json").read_text())
    assert "It cannot be drawn" not in write_report(again).read_text()


def test_best_of_n_prints_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = small_run.run(tmp_path, **WORLD, run__rounds="1")
    capsys.readouterr()
    words = ["--policy", str(run), "--reward", str(run), "--limit", "1", "--n", "2"]
    assert main(["bestofn", *words, "--set", f"world.name={boxed.SPEC}"]) == 0
    assert "  It cannot be drawn: " in capsys.readouterr().out
