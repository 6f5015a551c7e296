"""A run ends with the mean of its last policies, and what a rollback took back is not in it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
import torch
from processes import Point, resume, run_until
from torch import Tensor

import small_run
from holdfast.checkpoint.store import CheckpointStore
from holdfast.cli.main import main
from holdfast.control.policy_mean import COUNT
from holdfast.guard.review import Review
from small_run import differences, events_of, result_of

# Neither guard nor samples, so that the last round of one run is the last round of the other but for its end.
PLAIN = {"run__rounds": "4", "guard__mode": "off", "checkpoint__keep": "9"}


def weights(run: Path, round: int) -> dict[str, Tensor]:
    return dict(CheckpointStore(run / "checkpoints").load(f"round-{round:04d}").tensors["policy"])


def test_it_is_the_mean_of_the_rounds_last_policies(tmp_path: Path) -> None:
    alone = small_run.run(tmp_path / "alone", **PLAIN, run__average="1")
    mean = small_run.run(tmp_path / "mean", **PLAIN, run__average="2")
    for round in (1, 2, 3):
        torch.testing.assert_close(weights(mean, round), weights(alone, round), rtol=0, atol=0)
    third, fourth, ended = weights(alone, 3), weights(alone, 4), weights(mean, 4)
    assert any(not torch.equal(third[name], fourth[name]) for name in third)
    for name in ended:
        torch.testing.assert_close(ended[name], (third[name] + fourth[name]) / 2, msg=name)
    (told,) = events_of(mean, "averaged")
    assert (told["round"], told["policies"]) == (4, 2)
    assert told["kl"] > 0.0
    assert not events_of(alone, "averaged")


def test_what_a_rollback_takes_back_is_not_in_it(tmp_path: Path) -> None:
    """Three rounds would be in the mean, the first two are 4 and 5; in round 6 the run is taken back to round 4.

    Two rounds are left then, 6 and 7, which the mean ends with: 4, 6 and 7 are in it, and 5 is not.
    """
    longer = {**PLAIN, "run__rounds": "6", "run__average": "3"}
    run = run_until(tmp_path, Point("holdfast.run.learner:Learner.take_mean"), **longer)
    assert int(CheckpointStore(run / "checkpoints").load("round-0005").tensors["mean"][COUNT]) == 2
    assert main(["rollback", str(run), "round-0004"]) == 0
    resume(run)
    averaged = CheckpointStore(run / "checkpoints").load("round-0006").tensors["mean"]
    fourth, sixth = weights(run, 4), weights(run, 6)
    assert int(averaged[COUNT]) == 2
    for name in fourth:
        torch.testing.assert_close(averaged[name], (fourth[name] + sixth[name]) / 2, msg=name)
    assert [event["policies"] for event in events_of(run, "averaged")] == [3]
    assert "mean" not in CheckpointStore(run / "checkpoints").load("round-0007").tensors


def test_a_policy_that_people_had_something_against_is_not_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds 4, 5 and 6 would be in the mean; something was said against that of round 5."""
    against = iter([True] * 4 + [False] + [True])
    monkeypatch.setattr(Review, "stands", lambda *args: next(against))
    longer = {"run__rounds": "6", "run__average": "3", "guard__mode": "act", "audit__budget": "0"}
    run = small_run.run(tmp_path, **longer, checkpoint__keep="9")
    assert not events_of(run, "rollback")
    averaged = {n: CheckpointStore(run / "checkpoints").load(f"round-{n:04d}").tensors["mean"] for n in (4, 5)}
    assert [int(state[COUNT]) for state in averaged.values()] == [1, 1]
    fourth = weights(run, 4)
    torch.testing.assert_close({name: averaged[5][name] for name in fourth}, fourth, rtol=0, atol=0)
    assert [event["policies"] for event in events_of(run, "averaged")] == [2]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_that_is_killed_around_it_ends_with_the_same_mean(
    when: Literal["before", "after"], tmp_path: Path
) -> None:
    whole = small_run.run(tmp_path / "whole", **PLAIN, run__average="2")
    cut = run_until(tmp_path, Point("holdfast.run.learner:Learner.take_mean", when=when), **PLAIN, run__average="2")
    resume(cut)
    assert differences(result_of(cut, "round-0004"), result_of(whole, "round-0004")) == []
