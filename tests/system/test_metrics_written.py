"""The registry promises nothing that no run writes: every metric turns up in the metrics.jsonl of some run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import given_rewards
import small_run
from holdfast.cli.main import main
from holdfast.reward.ensemble import Ensemble, Judgement
from holdfast.track.metrics import COMPONENTS, REGISTRY, SIGNALS
from vllm_stand_in import StandIn, policy_in, serving


def run_with_a_member_that_stands_still(runs: Path, patch: pytest.MonkeyPatch) -> Path:
    judge = Ensemble.judge

    def with_one_still(ensemble: Ensemble, *args: Any) -> Judgement:
        torch.nn.init.zeros_(ensemble.members[1].head.weight)
        return judge(ensemble, *args)

    patch.setattr(Ensemble, "judge", with_one_still)
    return small_run.run(runs, reward__members="3", ppo__batch="12", guard__mode="off", run__rounds="1")


def test_every_registered_metric_is_written_by_some_run(
    unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = small_run.run(tmp_path, kl__placement="loss", kl__estimator="k3", kl__controller="adaptive")
    model, words = str(tmp_path / "model"), small_run.settings()
    assert main(["sft", model, *words]) == 0
    assert main(["dpo", "--policy", model, "--runs", str(tmp_path), "--name", "dpo", *words]) == 0
    with serving(StandIn(policy_in(str(unbroken / "reference")))) as url:
        served = small_run.run(
            tmp_path / "served", vllm__url=url, run__rounds="1", run__steps_per_round="1", ppo__lr="0.0"
        )
    with monkeypatch.context() as patch:
        degraded = run_with_a_member_that_stands_still(tmp_path / "degraded", patch)
    given = small_run.run(tmp_path / "given", reward__source=given_rewards.COUNTS, run__rounds="1")
    written = {
        name
        for run in (unbroken, loss, tmp_path / "dpo", served, degraded, given)
        for row in small_run.rows_of(run / "metrics.jsonl")
        for name in row
        if name not in ("step", "round") and not name.startswith((SIGNALS, COMPONENTS))
    }
    assert written == set(REGISTRY)
