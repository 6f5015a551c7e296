"""The worked examples of rewards that can be fooled, as whole runs of a second."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli.main import main
from small_run import events_of

ROOT = Path(__file__).parents[2]
SMALL = [
    "policy.hidden=16", "policy.heads=2", "policy.feed_forward=32", "policy.layers=1", "sft.epochs=1", "run.rounds=2",
    "run.steps_per_round=2", "ppo.batch=4", "ppo.samples_per_prompt=4", "audit.pairs=12", "audit.more_pairs=12",
    "world.options={demonstrations=64}", "run.threads=1", "track.samples=2",
]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("examples/countdown/run.toml", set()),
        ("examples/rubric/run.toml", {"answers every question", "keeps to the question", "cites a source"}),
    ],
)
def test_an_example_runs_as_it_stands(
    file: str, names: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    settings = [word for setting in SMALL for word in ("--set", setting)]
    assert main(["run", "--config", file, "--runs", str(tmp_path), "--name", "one", *settings]) == 0
    verdicts = events_of(tmp_path / "one", "verdict")
    assert len(verdicts) == 2
    told = {part["name"] for verdict in verdicts for part in verdict["evidence"]["components"]}
    assert told - {""} <= names
    (standard,) = events_of(tmp_path / "one", "standardised")
    assert set(standard["components"]) == names
    assert (tmp_path / "one" / "gold.jsonl").exists()
