"""A run whose grammar is in a file: its answers are what the file says, and a file that was changed is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from processes import Point, resume, run_until

from holdfast.cli.main import main
from small_run import events_of, rows_of

PATTERN = r"[A-Z][a-z ]{3,40}\."


@pytest.mark.slow
def test_a_grammar_whose_file_was_changed_is_told_when_the_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sentence.lark"
    file.write_text(f"start: /{PATTERN}/")
    run = run_until(
        tmp_path, Point("holdfast.run.loop:OnlineLoop.commit", about="round-0002"), rollout__grammar=str(file)
    )
    assert main(["doctor", str(run)]) == 0
    assert "grammar sentence.lark" in capsys.readouterr().out
    kept = file.read_text()
    file.unlink()
    assert main(["doctor", str(run)]) != 0
    assert "bring it back" in capsys.readouterr().out
    file.write_text(kept.replace("3,40", "4,40"))
    resume(run)
    (told,) = events_of(run, "grammar_changed")
    assert told["files"] == ["sentence.lark"]
    answers = [row["response"] for row in rows_of(run / "samples.jsonl")]
    assert answers
    assert all(re.fullmatch(PATTERN, answer) for answer in answers)
