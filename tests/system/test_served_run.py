"""Whole runs whose answers a server draws: like those drawn in the process, and resumable when the server dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch

import small_run
import vllm_stand_in
from holdfast.cli.main import main
from holdfast.config.schema import PolicyConfig
from holdfast.models.batches import lay_out
from holdfast.models.policy import Policy
from holdfast.rollout.sampler import Rollout, sample
from holdfast.rollout.served import SEEDS
from holdfast.run.answers import Answers
from holdfast.run.learner import Learner
from holdfast.train.ppo import rollout_batches
from vllm_stand_in import StandIn, draw_one, policy_in, serving

TESTS = Path(vllm_stand_in.__file__).parent


@contextmanager
def server_process(model: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server that can be killed."""
    words = [sys.executable, str(TESTS / "vllm_stand_in.py"), str(model)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.kill()


def drawn_here(
    answers: Answers, policy: Policy, prompts: list[list[int]], rng: torch.Generator, counted: bool = True
) -> Rollout:
    """In this process what a server does: a seed for each answer, then one pass for log-probs and values."""
    sampling, eos, pad = answers.sampling, answers.codec.eos_id, answers.codec.pad_id
    if policy is not answers.policy:
        return sample(policy, prompts, sampling, eos, pad, rng)
    seeds = torch.randint(SEEDS, (len(prompts),), generator=rng).tolist()
    drawn = [draw_one(policy, p, sampling, eos, s) for p, s in zip(prompts, seeds, strict=True)]
    responses = [tokens for tokens, _ in drawn]
    width = max(map(len, responses))
    mask_BT = torch.arange(width)[None] < torch.tensor([len(r) for r in responses])[:, None]
    zeros_BT = torch.zeros(len(prompts), width)
    rollout = Rollout(prompts, responses, zeros_BT, zeros_BT.clone(), mask_BT, [ended for _, ended in drawn])
    assert rollout.values_BT is not None
    with torch.no_grad():
        for batch in rollout_batches(policy, rollout, None, pad, PolicyConfig().micro_batch_tokens):
            out = policy(batch, sampling.temperature)
            assert out.values_N is not None
            lay_out(out.logprobs_N, batch, rollout.logprobs_BT)
            lay_out(out.values_N, batch, rollout.values_BT)
    return rollout


@dataclass(frozen=True)
class Served:
    """A run by a server, and that server."""

    run: Path
    stand_in: StandIn


@pytest.fixture(scope="module")
def served(unbroken: Path, tmp_path_factory: pytest.TempPathFactory) -> Served:
    stand_in = StandIn(policy_in(str(unbroken / "reference")))
    runs = tmp_path_factory.mktemp("served")
    (runs / "there").symlink_to(runs / small_run.NAME / "served")
    with serving(stand_in) as url:
        return Served(small_run.run(runs, vllm__url=url, vllm__weights=f":{runs}/there"), stand_in)


def assert_alike(one: Path, other: Path, rel: float, absolute: float, but_not: str = "") -> None:
    """Row by row: numbers within a tolerance, everything else equal."""
    for row, wanted in zip(small_run.rows_of(one), small_run.rows_of(other), strict=True):
        assert row.keys() - {but_not} == wanted.keys() - {but_not}
        for name, value in wanted.items():
            if isinstance(value, float):
                value = pytest.approx(value, rel=rel, abs=absolute)
            assert row[name] == value, (one.name, name, row)


def test_a_run_by_a_server_is_the_run_without_it(
    unbroken: Path, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = small_run.rows_of(served.run / "metrics.jsonl")
    assert len(rows) == small_run.ROUNDS * small_run.STEPS
    # Our model and the server's agree on every step, so the server had the weights of that step.
    assert all(row["rollout/server_gap"] < 1e-5 for row in rows)
    # The first weights, and new ones after each step but the last one's round, whose answers people compare.
    assert len(set(served.stand_in.loaded)) == len(rows) + 1
    assert {str(Path(path).parent) for path in served.stand_in.loaded} == {str(served.run.with_name("there"))}
    assert len(list((served.run / "served").iterdir())) == 1

    with monkeypatch.context() as patch:
        patch.setattr(Answers, "sample", drawn_here)
        here = small_run.run(tmp_path / "here")
    for name in ("metrics.jsonl", "samples.jsonl", "gold.jsonl"):
        assert_alike(served.run / name, here / name, 1e-3, 1e-4, but_not="rollout/server_gap")

    # And it is a run like the one that samples in its own way, which draws other answers from the same policy.
    plain = small_run.rows_of(unbroken / "metrics.jsonl")
    assert nats_a_token(rows) == pytest.approx(nats_a_token(plain), rel=0.1)
    assert fmean(row["objective/scores"] for row in rows) == pytest.approx(
        fmean(row["objective/scores"] for row in plain), abs=0.8
    )


def nats_a_token(rows: list[dict[str, Any]]) -> float:
    return fmean(row["objective/entropy"] / row["response/length_mean"] for row in rows)


def test_a_server_that_dies_leaves_a_run_that_goes_on(
    unbroken: Path, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with server_process(unbroken / "reference") as (url, process):
        step = Learner.step

        def kill_in_the_second_round(learner: Learner) -> None:
            if learner.journal.position.step == 3:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
            step(learner)

        with monkeypatch.context() as patch:
            patch.setattr(Learner, "step", kill_in_the_second_round)
            arguments = small_run.run_arguments(tmp_path, vllm__url=url, vllm__weights=str(tmp_path / "weights"))
            assert main(arguments) == 2
        told = capsys.readouterr().err.splitlines()[-1]
        assert told.startswith(f"holdfast: The vLLM server {url} cannot be reached ("), told
        assert told.endswith("start it, and go on with the same command or, where a run had begun, `holdfast resume`.")
        run = tmp_path / small_run.NAME
        # Still away: said before anything is touched.
        before = small_run.tree_of(run)
        assert main(["resume", str(run)]) == 2
        assert "cannot be reached" in capsys.readouterr().err
        assert small_run.tree_of(run) == before

    port = int(url.rpartition(":")[2])
    stand_in = StandIn(policy_in(str(unbroken / "reference")))
    monkeypatch.setattr(vllm_stand_in, "PORT", port)
    with serving(stand_in) as again:
        assert again == url
        assert main(["resume", str(run)]) == 0
    assert len(list((tmp_path / "weights").iterdir())) == 1
    # What was interrupted comes to what it would have come to.
    for name in ("metrics.jsonl", "samples.jsonl", "gold.jsonl"):
        assert_alike(run / name, served.run / name, 1e-6, 1e-6)


def test_a_server_that_is_away_is_found_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = small_run.run_arguments(tmp_path / "runs", vllm__url="http://127.0.0.1:1")
    assert main(arguments) == 2
    assert "holdfast: The vLLM server http://127.0.0.1:1 cannot be reached (" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
