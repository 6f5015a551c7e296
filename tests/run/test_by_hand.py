"""The loop by hand, in `examples/`, gives the numbers of `holdfast run`."""

from __future__ import annotations

import runpy
from pathlib import Path

import nostalgic
import small_run
from holdfast.config import load_config

SCRIPT = Path(__file__).parents[2] / "examples" / "by_hand.py"


def test_the_loop_by_hand_gives_the_numbers_of_the_program(tmp_path: Path) -> None:
    """With a rollback among them, and the mean of policies at the end."""
    changes = {"run__rounds": "4", "run__average": "2", "audit__pairs": "12", "world__labeller": nostalgic.SPEC}
    program = small_run.run(tmp_path, **changes)
    settings = small_run.settings(**changes)[1::2]
    rows = runpy.run_path(str(SCRIPT))["by_hand"](tmp_path / "hand", load_config(None, settings))
    written = small_run.rows_of(program / "metrics.jsonl")
    assert rows == [{name: line[name] for name in rows[0]} for line in written]
    assert len(rows) == 8
    assert small_run.events_of(program, "rollback")
    assert small_run.events_of(tmp_path / "hand", "rollback")


def test_it_is_short() -> None:
    code = [line for line in SCRIPT.read_text().splitlines() if line.strip()]
    assert len(code) < 60
