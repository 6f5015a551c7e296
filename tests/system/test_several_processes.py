"""Several processes on one run: the same numbers as one, resumable by any number, and an end when one of them dies."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import processes
import pytest
from processes import Point

import small_run
import unhurried
from holdfast.config import config_toml, load_config
from holdfast.track.sinks import read_rows

pytestmark = pytest.mark.slow

# With everything that holds weights of its own, and what is decided from sums over a batch.
TEN_STEPS = {
    "run__rounds": "5",
    "policy__critic": "model",
    "ppo__epoch_kl_stop": "0.02",
    "probes__every": "4",
}
STRATEGIES = ("data", "fsdp2")
# Metrics are compared as numbers near 1; what is larger, relative to its size.
TOLERANCE = 1e-4


def rows_of(run: Path) -> list[dict[str, Any]]:
    return small_run.rows_of(run / "metrics.jsonl")


def furthest(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> tuple[float, str]:
    """The largest difference between two runs' metrics, and where it is."""
    assert [row.keys() for row in one] == [row.keys() for row in other]
    found = [(0.0, "")]
    for a, b in zip(one, other, strict=True):
        for name, value in a.items():
            if value is None or b[name] is None:
                assert value == b[name], (name, a["step"])
            else:
                found.append((abs(value - b[name]) / max(1.0, abs(value)), f"{name} in step {a['step']}"))
    return max(found)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Ten steps in one process."""
    rows = rows_of(small_run.run(tmp_path_factory.mktemp("alone"), **TEN_STEPS))
    assert len(rows) == 10
    return rows


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_processes_give_the_metrics_of_one(strategy: str, alone: list[dict[str, Any]], tmp_path: Path) -> None:
    argv = small_run.run_arguments(tmp_path, **TEN_STEPS, processes__strategy=strategy)
    first, second = processes.several(argv, tmp_path / "said")
    assert (first.code, second.code) == (0, 0), first
    assert second.printed == ""
    run = tmp_path / small_run.NAME
    assert furthest(alone, rows_of(run)) < (TOLERANCE, "")
    assert json.loads((run / "manifest.json").read_text())["processes"] == 2


def test_what_process_0_probes_alone_does_not_keep_the_others_waiting(tmp_path: Path) -> None:
    """Passes of one process must not change which layers the next backward pass asks all processes for."""
    # One layer would have none before it to ask for. What top-p has kept crosses to the others too.
    changes = {**TEN_STEPS, "policy__layers": "3", "probes__every": "2", "rollout__top_p": "0.9"}
    alone = rows_of(small_run.run(tmp_path / "alone", **changes))
    several = {**changes, "processes__strategy": "fsdp2", "processes__timeout_minutes": "0.5"}
    first, second = processes.several(small_run.run_arguments(tmp_path, **several), tmp_path / "said")
    assert (first.code, second.code) == (0, 0), first
    run = tmp_path / small_run.NAME
    assert furthest(alone, rows_of(run)) < (TOLERANCE, "")
    assert {row["stage"] for row in read_rows(run / "probes.jsonl")} == {"sft", "ppo"}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_killed_then_one_process_then_two_again(strategy: str, alone: list[dict[str, Any]], tmp_path: Path) -> None:
    """Round 2 loses a process, round 3 is one process's until it is told to stop, and two do the rest."""
    argv = small_run.run_arguments(tmp_path, **TEN_STEPS, processes__strategy=strategy)
    # Rounds have two steps: the third update is in the middle of round 2.
    killed = Point("holdfast.train.ppo:PPO.learn", call=3)
    first, second = processes.several(argv, tmp_path / "killed", killed)
    assert second.code == -signal.SIGKILL
    assert first.code == 2
    run = tmp_path / small_run.NAME
    assert first.printed.count("holdfast: ") == 1
    assert "Another process of this run has ended, or kept this one waiting for more than 30 minutes" in first.printed
    assert f"`holdfast resume {run}`" in first.printed
    assert "Traceback" not in first.printed
    stopped = Point("holdfast.train.ppo:PPO.learn", call=4, number=signal.SIGTERM)
    processes.resume(run, stopped, code=130)
    assert 2 < len(rows_of(run)) < 10
    ended = processes.several(["resume", str(run)], tmp_path / "resumed")
    assert [process.code for process in ended] == [0, 0], ended
    assert furthest(alone, rows_of(run)) < (TOLERANCE, "")


def test_one_that_does_not_answer_ends_the_run_and_waiting_for_people_does_not(tmp_path: Path) -> None:
    """The labeller takes longer than processes may keep each other waiting; then one of them falls silent."""
    changes = {"world__labeller": unhurried.SPEC, "processes__timeout_minutes": str(unhurried.SECONDS / 60 / 1.5)}
    silent = Point("holdfast.train.ppo:PPO.learn", call=3, number=signal.SIGSTOP)
    first, _ = processes.several(small_run.run_arguments(tmp_path, **changes), tmp_path / "said", silent)
    assert first.code == 2
    assert "kept this one waiting for more than" in first.printed
    assert small_run.events_of(tmp_path / small_run.NAME, "ensemble_trained"), "the labeller was waited for"
    assert (tmp_path / small_run.NAME / "checkpoints" / "round-0001").is_dir()


def test_a_complaint_is_made_once_and_nothing_is_written(tmp_path: Path) -> None:
    argv = small_run.run_arguments(tmp_path / "runs", rollout__max_new_tokens="500")
    first, second = processes.several(argv, tmp_path / "said")
    assert (first.code, second.code) == (2, 2)
    assert "rollout.max_new_tokens is 500" in first.printed
    assert second.printed == ""
    assert not (tmp_path / "runs").exists()


def test_a_verb_for_one_process_refuses_several(tmp_path: Path) -> None:
    first, _ = processes.several(["sft", str(tmp_path / "model")], tmp_path / "said")
    assert first.code == 2
    assert "`holdfast sft` works in one process" in first.printed


def test_torchrun_from_a_config_file(alone: list[dict[str, Any]], tmp_path: Path) -> None:
    """As the documentation says it is done; the benchmark `several_processes` uses accelerate launch."""
    config = tmp_path / "small.toml"
    words = [word for word in small_run.settings(**{**TEN_STEPS, "run__rounds": "1"}) if word != "--set"]
    config.write_text(config_toml(load_config(None, words)))
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "holdfast", "run"]
    options = ["--config", str(config), "--runs", str(tmp_path / "runs"), "--name", "launched"]
    threads = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run([sys.executable, *start, *options], capture_output=True, text=True, timeout=240, env=threads)
    assert ended.returncode == 0, ended.stderr
    run = tmp_path / "runs" / "launched"
    assert json.loads((run / "manifest.json").read_text())["processes"] == 2
    assert len(rows_of(run)) == 2
    # Learning rates are annealed over the length of a run, so only what comes before the first update is the same.
    assert math.isclose(rows_of(run)[0]["objective/scores"], alone[0]["objective/scores"], abs_tol=TOLERANCE)
