"""The newcomer's path, as the script in examples/ walks it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import model_directories
from small_run import events_of

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
SMALL = (
    "reward.members=2", "reward.initial_comparisons=16", "reward.epochs=1", "reward.standardise_samples=16",
    "preferences.per_round=4", "audit.pairs=4", "audit.more_pairs=4", "guard.baseline_batches=4", "ppo.batch=8",
    "ppo.epochs=1", "rollout.max_new_tokens=12", "run.threads=1",
)  # fmt: skip


def test_the_whole_path(tmp_path: Path) -> None:
    """Own model, prompts and labeller; killed, resumed, rolled back, extended, exported, generated with."""
    model, work = model_directories.qwen2(tmp_path / "model"), tmp_path / "work"
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "80"}
    ended = subprocess.run(
        [ROOT / "examples" / "newcomer.sh", model, work, *SMALL],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, timeout=400, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout
    assert "Traceback" not in ended.stdout
    run = work / "runs" / "mine"
    happened = [event["event"] for event in events_of(run)]
    assert happened.count("run_finished") >= 1
    assert "rollback" in happened
    assert max(event["round"] for event in events_of(run)) >= 4
    assert (work / "better" / "README.md").is_file()
    _, _, generated = ended.stdout.partition("$ python generate.py\n")
    assert generated.strip()
