"""Published cures in whole runs: each does what it says, and a run without one never comes near them."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import Point, resume, run_until

import small_run
from small_run import differences, events_of, result_of, rows_of

UNGUARDED = {"guard__mode": "off", "preferences__per_round": "0", "gate__use": "false"}
REFITTED = {**UNGUARDED, "refresh__weights": "importance", "refresh__comparisons": "1000"}


def test_a_run_that_asks_for_none_is_what_it_was(
    unbroken_result: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one of their functions is called, so nothing of the run can depend on them."""

    def never(*_args: object, **_named: object) -> None:
        raise AssertionError("a cure that nobody asked for")

    for place in (
        "holdfast.algorithms.credit.affirmed",
        "holdfast.train.ppo.regularised_gradient",
        "holdfast.train.ppo.PPO._penalise",
        "holdfast.reward.importance.importance_weights",
        "holdfast.reward.importance.Importance.weighed",
        "holdfast.reward.training._to_the_mean",
        "holdfast.reward.source.bounded",
    ):
        monkeypatch.setattr(place, never)
    assert differences(unbroken_result, result_of(small_run.run(tmp_path))) == []


def test_a_run_ends_where_kl_reaches_its_stop(tmp_path: Path) -> None:
    whole = small_run.run(tmp_path / "whole", **UNGUARDED)
    kls = [row["objective/kl"] for row in rows_of(whole / "metrics.jsonl")]
    limit = 0.999 * kls[3]
    assert max(kls[:3]) < limit, "step 4, in the middle of the plan, is the first to reach it"
    run = small_run.run(tmp_path, **UNGUARDED, run__stop_at_kl=str(limit))
    assert [row["objective/kl"] for row in rows_of(run / "metrics.jsonl")] == kls[:4]
    (stop,) = events_of(run, "kl_stop")
    assert (stop["step"], stop["kl"]) == (4, kls[3])
    assert len(events_of(run, "run_finished")) == 1
    assert not events_of(run, "averaged"), "what it ends with is the policy at the stop"
    before = rows_of(run / "metrics.jsonl")
    resume(run)
    assert rows_of(run / "metrics.jsonl") == before, "started again it is still where it may not go on"


def test_labels_are_weighed_anew_in_every_round_and_none_is_added(tmp_path: Path) -> None:
    run = small_run.run(tmp_path, **REFITTED)
    refreshes = events_of(run, "refresh")
    assert [(r["round"], r["version"]) for r in refreshes] == [(2, 2), (3, 3)]
    assert {r["labels"] for r in refreshes} == {24}
    assert len({r["trained_on"] for r in refreshes}) == 1
    equal = small_run.run(tmp_path / "equal", **UNGUARDED)
    assert not events_of(equal, "refresh")
    (tmp_path / "cut").mkdir()
    cut = run_until(tmp_path / "cut", Point("holdfast.run.learner:Learner.step", call=4), **REFITTED)
    resume(cut)
    assert differences(result_of(cut), result_of(run)) == []


def test_averaged_members_are_one_member_in_every_version(tmp_path: Path) -> None:
    run = small_run.run(tmp_path, reward__aggregation="averaged", reward__members="2")
    versions = sorted((run / "rewards").glob("v*"))
    assert len(versions) >= 2
    assert all([file.name for file in version.glob("member-*")] == ["member-0.safetensors"] for version in versions)
    assert {row["ensemble/spread"] for row in rows_of(run / "metrics.jsonl")} == {0.0}


def test_a_nudge_and_a_penalty_change_what_is_learnt_from_the_first_step_on(tmp_path: Path) -> None:
    runs = {
        name: rows_of(small_run.run(tmp_path / name, **UNGUARDED, **changes) / "metrics.jsonl")
        for name, changes in {
            "plain": {}, "nudge": {"ppo__advantage_offset": "0.5"}, "penalty": {"ppo__gradient_penalty": "0.5"},
        }.items()
    }  # fmt: skip
    first = {name: rows[0]["objective/kl_step"] for name, rows in runs.items()}
    assert len(set(first.values())) == 3
    # What it sampled before it had learnt anything is the same.
    assert len({rows[0]["objective/scores"] for rows in runs.values()}) == 1
