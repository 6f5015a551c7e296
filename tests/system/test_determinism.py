"""The seed decides everything: the same one gives the same bytes, another one others."""

from __future__ import annotations

from pathlib import Path

import small_run


def test_two_runs_with_one_seed_are_equal_bit_for_bit(unbroken_result: dict[str, object], tmp_path: Path) -> None:
    again = small_run.result_of(small_run.run(tmp_path))
    assert small_run.differences(unbroken_result, again) == []


def test_the_name_of_a_run_changes_nothing(unbroken_result: dict[str, object], tmp_path: Path) -> None:
    small_run.run(tmp_path, "--name", "another")
    assert small_run.differences(unbroken_result, small_run.result_of(tmp_path / "another")) == []


def test_the_run_did_something_that_could_differ(unbroken: Path, unbroken_result: dict[str, object]) -> None:
    """Equal bytes mean little if nothing moved: the policy learned and the ensemble was refreshed."""
    start = small_run.checkpoint_of(unbroken, f"round-{small_run.ROUNDS - 1:04d}")
    moved = [name for name in start if name.startswith("policy/") and start[name] != unbroken_result[name]]
    assert len(moved) > 10
    rows = small_run.rows_of(unbroken / "metrics.jsonl")
    assert [row["step"] for row in rows] == list(range(1, small_run.ROUNDS * small_run.STEPS + 1))
    assert len({row["ensemble/version"] for row in rows}) >= 2
    assert rows[-1]["objective/kl_cumulative"] > 0.01
    gold = small_run.rows_of(unbroken / "gold.jsonl")
    # A run that ends with its last good policy measures that one too, at the same step.
    assert sorted({row["step"] for row in gold if row["split"] == "heldout"}) == [0, 2, 4, 6]
    assert len([row for row in gold if row["split"] == "samples"]) == 4 * 4


def test_another_seed_differs_everywhere(unbroken_result: dict[str, object], tmp_path: Path) -> None:
    other = small_run.result_of(small_run.run(tmp_path, run__seed="4"))
    different = small_run.differences(unbroken_result, other)
    assert {"metrics.jsonl", "samples.jsonl", "gold.jsonl", "labels", "policy/lm.lm_head.weight"} <= set(different)
