"""Every kind from end to end on a toy model, and our side of a comparison."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from benchmarks.__main__ import main
from benchmarks.speed import workload as workloads
from benchmarks.speed.ours import NO_END, Job, config_of, put_together
from benchmarks.speed.workload import Workload, workload
from transformers import AutoModelForSequenceClassification


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench")


@pytest.fixture(scope="module")
def natural(work: Path) -> Workload:
    return workload("natural", "quick", 8, work, lambda _: None)


@pytest.mark.parametrize("kind", ["update", "iteration"])
def test_a_kind_prints_a_table_and_keeps_its_result(
    kind: str, work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([kind, "--quick", "--cores", "1", "--work", str(work), "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    file = tmp_path / f"bench-{kind}-1core.json"
    assert str(file) in told.replace("\n", "")
    assert max(len(line) for line in told.splitlines()[:-1]) <= 100
    assert "…" not in told
    result = json.loads(file.read_text())
    assert {"command", "holdfast", "torch", "cores", "cpu", "peak_gflops"} <= result["made_by"].keys()
    assert all(name in told for name in result["cases"])
    assert [p.name for p in tmp_path.iterdir()] == [file.name]


def test_json_is_what_is_kept(work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sampler", "--quick", "--json", "--work", str(work), "--out", str(tmp_path)]) == 0
    (file,) = tmp_path.iterdir()
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(file.read_text())
    fixed = printed["cases"]["fixed-quick"]
    assert fixed["sides"]["ours"]["mean_length"] == fixed["sides"]["generate"]["mean_length"] == 6.0


def test_a_workload_is_made_once_and_anew_when_it_was_cut_short_or_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    first = workload("fixed", "quick", 4, tmp_path, told.append)
    again = workload("fixed", "quick", 4, tmp_path, told.append)
    assert first == again
    assert len(told) == 1
    (first.directory / "workload.json").unlink()
    assert workload("fixed", "quick", 4, tmp_path, told.append) == first
    assert len(told) == 2
    wider = replace(workloads.SIZES["quick"], shape=replace(workloads.SIZES["quick"].shape, hidden=32))
    monkeypatch.setitem(workloads.SIZES, "quick", wider)
    assert workload("fixed", "quick", 4, tmp_path, told.append).parameters > first.parameters
    assert len(told) == 3
    assert [p.name for p in (tmp_path / "models").iterdir()] == ["fixed-quick"]


@pytest.mark.parametrize(("algorithm", "group"), [("ppo", 1), ("grpo", 2), ("rloo", 2)])
def test_our_step_does_the_whole_work(natural: Workload, algorithm: str, group: int) -> None:
    job = Job.on(natural, algorithm=algorithm, critic="model", samples_per_prompt=group)
    ours = put_together(job, config_of(job))
    before = [p.detach().clone() for p in ours.ppo.parameters]
    rollout = ours.step()
    assert len(rollout.responses) == len(natural.prompts) * group
    assert len(ours.moments) == 4
    assert ours.moments == sorted(ours.moments)
    assert all(not torch.equal(p, q) for p, q in zip(ours.ppo.parameters, before, strict=True) if p.requires_grad)
    assert (ours.ppo.critic is not None) == (algorithm == "ppo")


def test_no_answer_of_the_fixed_workload_ends_early(work: Path) -> None:
    given = workload("fixed", "quick", 8, work, lambda _: None)
    job = Job.on(given)
    ours = put_together(job, config_of(job))
    assert ours.eos_id == NO_END
    assert set(ours.sample().lengths) == {given.new_tokens}
    assert {len(p) for p in given.prompts} == {5}


def test_both_sides_are_rewarded_by_the_same_model(natural: Workload) -> None:
    job = Job.on(natural)
    ours = put_together(job, config_of(job))
    rollout = ours.sample()
    theirs = AutoModelForSequenceClassification.from_pretrained(natural.reward, num_labels=1)
    with torch.no_grad():
        scores = [
            float(theirs(input_ids=torch.tensor([p + r])).logits)
            for p, r in zip(rollout.prompts, rollout.responses, strict=True)
        ]
    torch.testing.assert_close(
        ours.rewarding.ensemble.raw_scores(rollout.prompts, rollout.responses)[0], torch.tensor(scores)
    )
