"""Probes in the loop: the run is the same with and without them, and a resumed one has the same rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import Point, resume, run_until

import small_run
from small_run import differences, result_of, rows_of

PROBED = {"probes__every": "1"}


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run.run(tmp_path_factory.mktemp("probed"), **PROBED)


def without_offsets(result: dict[str, object]) -> dict[str, object]:
    """How many bytes of probes there are is all that may differ."""
    parts = result["parts"]
    assert isinstance(parts, dict)
    parts["files"].pop("probes.jsonl")
    return result


def test_looking_changes_nothing(probed: Path, unbroken: Path) -> None:
    assert differences(without_offsets(result_of(probed)), without_offsets(result_of(unbroken))) == []
    assert (unbroken / "probes.jsonl").read_bytes() == b""


def test_every_step_is_probed_and_ppo_has_signs(probed: Path) -> None:
    rows = rows_of(probed / "probes.jsonl")
    assert [row["step"] for row in rows if row["stage"] == "sft"] == list(range(9))
    own = [row for row in rows if row["stage"] == "ppo"]
    assert [row["step"] for row in own] == list(range(small_run.ROUNDS * small_run.STEPS + 1))
    moved = [row["rollout"] for row in own[1:]]
    assert all(sign["tokens"] > 0 for row in moved for sign in (row["positive"], row["negative"]))
    # An update makes the tokens it praises likelier than those it blames, compared with before.
    gains = [
        (row["positive"]["after"] - row["positive"]["before"]) - (row["negative"]["after"] - row["negative"]["before"])
        for row in moved
    ]
    assert sum(gains) > 0.0


@pytest.mark.parametrize(
    "point",
    [Point("holdfast.train.sft:accumulate", call=5), Point("holdfast.train.ppo:PPO.update", call=5)],
    ids=["in fine-tuning", "in the loop"],
)
def test_a_killed_run_has_the_same_probes(point: Point, probed: Path, tmp_path: Path) -> None:
    run = run_until(tmp_path, point, **PROBED)
    resume(run)
    assert (run / "probes.jsonl").read_bytes() == (probed / "probes.jsonl").read_bytes()
    assert differences(result_of(run), result_of(probed)) == []
