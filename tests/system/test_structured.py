"""Every way of training under a grammar: what is sampled is valid, and what is killed goes on bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from processes import Point, resume, run_until

import small_run
from holdfast.checkpoint.store import CheckpointStore
from holdfast.cli.main import main
from holdfast.stages.offline_dpo import OfflineDPO
from small_run import differences, result_of, rows_of, settings

# The layout world brings its schema along; an answer of one box has 12 tokens.
LAYOUT = {
    "world__name": "layout", "world__options": "{prompts = 32, demonstrations = 32, heldout = 8}",
    "rollout__max_new_tokens": "32",
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "sft"
    assert main(["sft", str(path), *settings(**LAYOUT)]) == 0
    return path


def layouts_of(run: Path) -> list[Any]:
    """Every sample that has ended, which has to be JSON."""
    return [json.loads(row["response"]) for row in rows_of(run / "samples.jsonl") if row["finished"]]


def test_a_run_that_is_killed_goes_on_bit_for_bit(tmp_path: Path) -> None:
    whole = small_run.run(tmp_path / "whole", **LAYOUT)
    metrics = rows_of(whole / "metrics.jsonl")
    assert all(set(box) == {"type", "x", "y", "w", "h"} for layout in layouts_of(whole) for box in layout)
    assert len(layouts_of(whole)) == len(rows_of(whole / "samples.jsonl")), "the grammar leads to an end in time"
    assert metrics[0]["objective/kl"] == pytest.approx(0.0, abs=1e-5), "the policy begins as the reference"
    (tmp_path / "cut").mkdir()
    cut = run_until(tmp_path / "cut", Point("holdfast.train.ppo:PPO._accumulate", call=7), **LAYOUT)
    resume(cut)
    assert differences(result_of(cut), result_of(whole)) == []


def test_without_renormalising_ratios_and_kl_are_of_the_whole_vocabulary(tmp_path: Path) -> None:
    run = small_run.run(tmp_path, rollout__renormalise="false", **LAYOUT)
    assert layouts_of(run)
    assert rows_of(run / "metrics.jsonl")[0]["objective/kl"] == pytest.approx(0.0, abs=1e-5)


def test_dpo_that_is_cut_goes_on_bit_for_bit(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def arguments(name: str) -> list[str]:
        return ["dpo", "--policy", str(model), "--runs", str(tmp_path), "--name", name, *settings(**LAYOUT)]

    assert main(arguments("whole")) == 0
    update, calls = OfflineDPO.update, []

    def cut(self: OfflineDPO) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise OSError("the machine stops")
        update(self)

    with monkeypatch.context() as patch:
        patch.setattr(OfflineDPO, "update", cut)
        patch.setattr("holdfast.checkpoint.pace.SHARE", 1e9)  # however little time has passed
        assert main(arguments("cut")) == 2
    assert main(["resume", str(tmp_path / "cut")]) == 0
    whole, again = (
        CheckpointStore(tmp_path / name / "checkpoints").load("round-0002").tensors["policy"]
        for name in ("whole", "cut")
    )
    assert all(whole[name].equal(again[name]) for name in whole)
    rows = rows_of(tmp_path / "whole" / "metrics.jsonl")
    assert rows_of(tmp_path / "cut" / "metrics.jsonl") == rows
    assert rows[-1]["rewards/margins"] > 0.0
    assert layouts_of(tmp_path / "whole")


def test_best_of_n_is_valid_and_the_same_again(model: Path, tmp_path: Path) -> None:
    reward = tmp_path / "length.py"
    reward.write_text("def score(prompt, response):\n    return float(len(response))\n")
    for name in ("one", "two"):
        argv = ["bestofn", "--policy", str(model), "--reward", f"{reward}:score", "--out", str(tmp_path / name)]
        assert main([*argv, "--n", "4", *settings(reward__source=f"{reward}:score", **LAYOUT)]) == 0
    one, two = ((tmp_path / name).read_text() for name in ("one", "two"))
    assert one == two
    for line in one.splitlines():
        assert isinstance(json.loads(json.loads(line)["response"]), list)


def test_a_pipeline_that_is_cut_comes_to_the_same_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {**LAYOUT, "run__rounds": "1", "dpo__epochs": "1", "bestofn__prompts": "16"}

    def arguments(name: str) -> list[str]:
        words = ["--stages", "sft,reward,ppo,dpo@sft,distil@sft", *settings(**changes)]
        return ["pipeline", "--runs", str(tmp_path), "--name", name, *words]

    def ledger(name: str) -> list[dict[str, Any]]:
        rows = rows_of(tmp_path / name / "ledger.jsonl")
        return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]

    def cut(self: OfflineDPO) -> None:
        raise OSError("the machine stops")

    assert main(arguments("whole")) == 0
    with monkeypatch.context() as patch:
        patch.setattr(OfflineDPO, "update", cut)
        assert main(arguments("cut")) == 2
    assert main(["resume", str(tmp_path / "cut")]) == 0
    assert ledger("cut") == ledger("whole")
    assert [row["stage"] for row in ledger("whole")] == ["sft", "reward", "ppo", "dpo", "distil"]
