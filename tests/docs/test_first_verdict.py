"""The page that leads a user of TRL's to a first verdict: its script is the example, and comes to one."""

from __future__ import annotations

import json
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from pages import ROOT, blocks_of

import small_run
from holdfast.cli.main import main

sys.path.insert(0, str(ROOT / "tests" / "interop"))
from group_trainer import GROUP, trainer_of

PAGE, EXAMPLE = ROOT / "docs" / "guard-your-training.md", ROOT / "examples" / "guard_grpo.py"


def script() -> str:
    (block,) = [block.code for block in blocks_of(PAGE) if "GRPOTrainer(" in block.code]
    return block


def test_the_script_of_the_page_is_the_example() -> None:
    example = re.sub(r'^""".*?"""\n+', "", EXAMPLE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert script().strip() == example.strip()


def test_the_script_comes_to_a_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a stand-in for TRL: transformers' own trainer, with the hooks, names and shapes that the guard uses."""
    stand_in: Any = types.ModuleType("trl")

    def arguments(output_dir: str, **given: Any) -> dict[str, Any]:
        assert given["max_steps"] == 24
        return {"output": output_dir, "lr": given["learning_rate"]}

    def trainer(model: str, reward_funcs: list[Any], args: dict[str, Any], train_dataset: Any) -> Any:
        rows = [dict(row) for row in train_dataset]
        settings = {"per_device_train_batch_size": 32 // GROUP, "generation_batch_size": 32, "steps": 6}
        output = Path(args["output"])
        return trainer_of(tmp_path / model, reward_funcs, output, rows, beta=0.0, learning_rate=args["lr"], **settings)

    stand_in.GRPOConfig, stand_in.GRPOTrainer = arguments, trainer
    monkeypatch.setitem(sys.modules, "trl", stand_in)
    monkeypatch.chdir(tmp_path)
    words = small_run.settings(sft__epochs="2")
    assert main(["sft", "tiny", *words]) == 0
    exec(compile(script(), str(PAGE), "exec"), {"__name__": "__main__"})
    rows = [json.loads(row) for row in (tmp_path / "out/holdfast/events.jsonl").read_text().splitlines()]
    (verdict,) = [row for row in rows if row["event"] == "verdict"]
    assert "the labeller" in verdict["sentence"]
    assert {each["name"] for each in verdict["evidence"]["components"]} == {"right", "thorough"}
