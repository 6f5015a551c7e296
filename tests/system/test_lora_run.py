"""The whole loop on LoRA: one copy of the weights, checkpoints without it, resume, rollback and export as ever."""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM

import nostalgic
import small_run
from holdfast.checkpoint.store import CheckpointStore
from holdfast.cli.main import main
from holdfast.config import load_config
from holdfast.models.batches import take_rows
from holdfast.models.policy import Policy
from holdfast.models.weights import learning
from holdfast.run.build import assemble
from holdfast.run.directory import RunDirectory
from holdfast.run.export import export_policy
from holdfast.run.inputs import gather
from holdfast.run.loop import OnlineLoop
from holdfast.run.origin import checkpoint_policy
from holdfast.track.progress import Silent
from holdfast.worlds.registry import load_task, load_world

LORA = {"policy__lora_rank": "4", "policy__lora_alpha": "8.0", "ppo__lr": "0.01", "refresh__every_rounds": "1"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run.run(tmp_path_factory.mktemp("lora"), **LORA)


def reopened(run: Path) -> AbstractContextManager[OnlineLoop]:
    config = load_config(run / "config.toml")
    ingredients = gather(config, load_task(config, load_world(config)), run / "reference", ensemble_given=True)
    return assemble(ingredients, RunDirectory.open(run), Silent())


def names_in(file: Path) -> list[str]:
    with safe_open(file, framework="pt") as opened:
        return list(opened.keys())


def test_checkpoints_and_versions_hold_no_base_weights(run: Path) -> None:
    files = [*run.glob("checkpoints/*/policy.safetensors"), *run.glob("rewards/v*/member-*.safetensors")]
    assert len(files) >= 2 + 2 * 2
    for file in files:
        names = names_in(file)
        assert any("lora_A" in name for name in names)
        assert all("lora_" in name or "head." in name for name in names), file
    last = next(run.glob("checkpoints/round-0003/optimiser.safetensors"))
    trained = [name for name in names_in(last) if name.endswith("exp_avg")]
    assert len(trained) == 2 * 7 + 2  # A and B of seven projections of one layer, the value head's weight and bias


def test_everything_in_the_loop_stands_on_one_base(run: Path) -> None:
    with reopened(run) as loop:
        assert loop.host is not None
        base = {p.data_ptr() for p in loop.learner.reference.parameters()}
        models: list[Any] = [loop.learner.policy, loop.host.anchor, *loop.training.ensemble.members]
        for model in models:
            assert {p.data_ptr() for p in model.parameters() if not p.requires_grad} <= base
            assert base.isdisjoint(p.data_ptr() for p in learning(model))
        assert len(loop.training.ensemble.members) == 2


def test_the_policy_has_learnt_and_the_reference_has_not(run: Path) -> None:
    rows = small_run.rows_of(run / "metrics.jsonl")
    assert rows[0]["objective/kl"] == pytest.approx(0.0, abs=1e-4)
    assert rows[-1]["objective/kl_cumulative"] > 0.01
    assert small_run.events_of(run, "refresh")


def test_two_runs_are_equal_and_a_resumed_one_is_too(run: Path, tmp_path: Path) -> None:
    again = small_run.run(tmp_path, **LORA)
    whole = small_run.result_of(run)
    assert small_run.differences(whole, small_run.result_of(again)) == []
    shutil.rmtree(again / "checkpoints" / small_run.LAST)
    assert main(["resume", str(again)]) == 0
    assert small_run.events_of(again, "resumed")[-1]["checkpoint"] == "round-0002"
    assert small_run.differences(whole, small_run.result_of(again)) == []


def test_exported_weights_and_adapters_say_the_same_as_the_policy(run: Path, tmp_path: Path) -> None:
    directory = RunDirectory.open(run)
    name = export_policy(directory, tmp_path / "merged", None).checkpoint
    merged = Policy(AutoModelForCausalLM.from_pretrained(tmp_path / "merged"))
    own, codec, _ = checkpoint_policy(directory, name, merge=False)
    reference = AutoModelForCausalLM.from_pretrained(run / "reference")
    prompts, answers = [codec.encode_prompt("Hello, when do you open?")], [codec.encode_response("We open at noon.")]
    batch = take_rows(prompts, answers, [0], codec.pad_id, "cpu")
    torch.testing.assert_close(merged(batch).logprobs_N, Policy(own)(batch).logprobs_N, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(merged(batch).logprobs_N, Policy(reference)(batch).logprobs_N, atol=1e-4)
    export_policy(directory, tmp_path / "adapters", None, adapters=True)
    assert (tmp_path / "adapters" / "adapter_config.json").is_file()
    assert not (tmp_path / "adapters" / "model.safetensors").exists()


def test_a_rollback_brings_the_adapters_back(tmp_path: Path) -> None:
    run = small_run.run(tmp_path, world__labeller=nostalgic.SPEC, audit__pairs="12", **LORA)
    events = small_run.events_of(run, "rollback")
    assert events
    # `roll_back` compares every tensor with the checkpoint's and refuses to go on where one differs.
    assert CheckpointStore(run / "checkpoints").load_newest().snapshot.tensors["policy"]


def test_members_on_other_weights_are_refused(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "ppo",
        "--reward",
        str(run / "rewards"),
        "--runs",
        str(tmp_path),
        *small_run.settings(**LORA, sft__epochs="0"),
    ]
    assert main([*words, "--policy", str(run / "reference"), "--name", "right", "--set", "run.rounds=1"]) == 0
    other = small_run.run(tmp_path, run__seed="4", run__rounds="1")
    assert main([*words, "--policy", str(other / "reference"), "--name", "wrong"]) == 2
    assert "not trained on these frozen weights" in capsys.readouterr().err


def test_a_critic_of_its_own_is_adapters_too(tmp_path: Path) -> None:
    run = small_run.run(
        tmp_path, run__rounds="1", policy__critic="model", policy__gradient_checkpointing="true", **LORA
    )
    names = names_in(run / "checkpoints" / "round-0001" / "critic.safetensors")
    assert all("lora_" in name or name.startswith("head.") for name in names)


def test_a_base_in_16_bits(tmp_path: Path) -> None:
    run = small_run.run(tmp_path, run__rounds="1", policy__dtype="bfloat16", **LORA)
    with safe_open(run / "reference" / "model.safetensors", framework="pt") as opened:
        assert {opened.get_tensor(name).dtype for name in opened.keys()} == {torch.bfloat16}  # noqa: SIM118
    assert small_run.rows_of(run / "metrics.jsonl")[-1]["objective/kl"] != 0.0
    export_policy(RunDirectory.open(run), tmp_path / "out", None)
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto").dtype == torch.bfloat16


def test_sft_of_a_given_model_goes_through_adapters(run: Path, tmp_path: Path) -> None:
    words = small_run.settings(**LORA, sft__epochs="1")
    assert main(["sft", str(tmp_path / "out"), "--policy", str(run / "reference"), *words]) == 0
    before, after = (
        AutoModelForCausalLM.from_pretrained(where).state_dict() for where in (run / "reference", tmp_path / "out")
    )
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if "_proj" in name}


def test_dpo_on_adapters(run: Path, tmp_path: Path) -> None:
    words = small_run.settings(**LORA, dpo__epochs="1", dpo__comparisons="24", probes__every="0")
    given = ["--policy", str(run / "reference"), "--runs", str(tmp_path), "--name", "dpo"]
    assert main(["dpo", *given, *words]) == 0
    names = names_in(tmp_path / "dpo" / "checkpoints" / "round-0001" / "policy.safetensors")
    assert all("lora_" in name for name in names)
    export_policy(RunDirectory.open(tmp_path / "dpo"), tmp_path / "out", None)


def test_the_manifest_and_the_report_say_what_the_run_cost(run: Path) -> None:
    manifest = RunDirectory.open(run).manifest()
    assert manifest["seconds"] > 0
    assert 50e6 < manifest["peak_memory"] < 50e9
    page = (run / "report.html").read_text()
    assert "peak memory" in page
    assert f"{manifest['peak_memory'] / 1e9:.2f} GB" in page
    directory = RunDirectory.open(run)
    directory.record_effort(10.0, 1)
    again = directory.manifest()
    assert again["seconds"] == pytest.approx(manifest["seconds"] + 10.0)
    assert again["peak_memory"] == manifest["peak_memory"]


def test_layers_that_cannot_have_adapters_are_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = small_run.settings(**LORA, policy__lora_targets="['qkv']")
    assert main(["run", "--runs", str(tmp_path), "--name", "none", *words]) == 2
    assert "policy.lora_targets" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
