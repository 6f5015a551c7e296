"""A run ends with the mean of its last policies, and what a rollback took back is not in it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
import torch
from processes import Point, resume, run_until
from torch import Tensor

import nostalgic
import small_run
from holdfast.checkpoint.store import CheckpointStore
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
    """Rounds 2 and 3 are taken back to round 1, so the mean is of that policy and of round 4's."""
    nostalgia = {"world__labeller": nostalgic.SPEC, "run__rounds": "4", "run__average": "2", "checkpoint__keep": "9"}
    nostalgia |= {"guard__mode": "act", "audit__pairs": "12", "audit__suspicious_pairs": "24", "audit__budget": "500"}
    run = small_run.run(tmp_path, **nostalgia)
    gone = [event["round"] for event in events_of(run, "rollback")]
    assert gone[:2] == [2, 3]
    snapshot = CheckpointStore(run / "checkpoints").load("round-0003")
    averaged, good = snapshot.tensors["average"], weights(run, 1)
    torch.testing.assert_close({name: averaged[name] for name in good}, good, rtol=0, atol=0)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_that_is_killed_around_it_ends_with_the_same_mean(
    when: Literal["before", "after"], tmp_path: Path
) -> None:
    whole = small_run.run(tmp_path / "whole", **PLAIN, run__average="2")
    cut = run_until(tmp_path, Point("holdfast.loop:take_mean", when=when), **PLAIN, run__average="2")
    resume(cut)
    assert differences(result_of(cut, "round-0004"), result_of(whole, "round-0004")) == []
