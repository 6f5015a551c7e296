"""Whole runs whose learning rates nobody has set: steps that fit the model, whichever it is, and what is said of rates
that somebody has set and that do not.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import model_directories
import small_run
from holdfast.cli.main import main
from holdfast.config import Config
from holdfast.control.presets import BUILT_IN, SMALL_PRETRAINED
from holdfast.run.directory import RunDirectory
from small_run import differences, events_of, result_of, rows_of
from system.processes import Point, SlowSteps, resume, run_until

RATES = ("sft__lr", "reward__lr", "refresh__lr", "ppo__lr")
CHOSEN = dict.fromkeys((*RATES, "kl__unit"), "0.0")
FIRST_ROUND = {**CHOSEN, "run__rounds": "1", "run__steps_per_round": "6", "ppo__batch": "16"}


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-2 that has been through a few thousand updates on what people say."""
    home = tmp_path_factory.mktemp("pretrained")
    model_directories.gpt2(home / "new")
    shown = {"world__options": "{prompts = 64, demonstrations = 2000, heldout = 8}", "policy__path": str(home / "new")}
    settings = small_run.settings(sft__epochs="8", sft__lr="0.005", **shown)
    assert main(["sft", str(home / "gpt2"), *settings]) == 0
    return home / "gpt2"


def steps_of(run: Path) -> list[dict[str, Any]]:
    return rows_of(run / "metrics.jsonl")


def test_the_same_command_fits_the_built_in_model_and_a_pretrained_one(
    pretrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """KL per step within a factor of two of its aim in the first round, from rates that are far apart."""
    rates = {}
    for name, more in {"built in": {"sft__epochs": "40"}, "gpt2": {"sft__epochs": "0"}}.items():
        path = {"policy__path": str(pretrained)} if name == "gpt2" else {}
        run = small_run.run(tmp_path / name, **FIRST_ROUND, **more, **path)
        said = capsys.readouterr().err
        steps = steps_of(run)
        assert len(steps) == 6
        for step in steps:
            assert 0.5 <= step["objective/kl_step"] / step["control/kl_aim"] <= 2.0, (name, step["step"])
        rates[name] = steps[-1]["control/lr"]
        preset = (SMALL_PRETRAINED if name == "gpt2" else BUILT_IN).rates
        assert RunDirectory(run).manifest()["rates"] == {
            name.replace("__", "."): preset[name.replace("__", ".")] for name in RATES
        }
        assert RunDirectory(run).config().ppo.lr == Config().ppo.lr == 0.0
        assert "Learning rates for" in said
        assert "steps are then sized by the KL that they move" in said
        # 16 steps of the first size are worth the budget, which is said; aims are annealed from the second step on.
        budget = steps[0]["control/kl_aim"] * 16
        assert steps[0]["control/kl_target"] == pytest.approx(budget)
        entropy = float(said.partition("entropy of the reference's answers ")[2].partition(" nats")[0])
        assert budget == pytest.approx((2.0 + 24 / 1000) * max(0.25, math.sqrt(entropy / 11)), rel=0.01)
        assert not events_of(run, "rate_far_out")
    assert rates["built in"] != rates["gpt2"]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run.run(tmp_path_factory.mktemp("unbroken"), **CHOSEN)


@pytest.mark.parametrize("call", [1, 4], ids=["in the first step", "in a later round"])
def test_a_killed_run_sizes_its_steps_as_an_unbroken_one(call: int, unbroken: Path, tmp_path: Path) -> None:
    run = run_until(tmp_path, Point("holdfast.train.ppo:PPO.learn", call=call, when="after"), SlowSteps(), **CHOSEN)
    resume(run)
    assert differences(result_of(run), result_of(unbroken)) == []
    assert any(step["control/tries"] > 1 for step in steps_of(run)), "something was taken back"


def test_what_was_chosen_is_part_of_a_checkpoint_and_of_what_a_rollback_takes_back(unbroken: Path) -> None:
    parts = small_run.checkpoint_of(unbroken)["parts"]
    assert isinstance(parts, dict)
    assert parts["step_size"]["steps"] > 0
    assert json.loads((unbroken / "manifest.json").read_text())["rates"]["ppo.lr"] == BUILT_IN.rates["ppo.lr"]


def test_a_rate_that_is_thirty_times_too_large_is_warned_of_before_the_first_step(
    pretrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {"sft__epochs": "0", "policy__path": str(pretrained)}
    fits = median(step["control/lr"] for step in steps_of(small_run.run(tmp_path / "own", **FIRST_ROUND, **own)))
    capsys.readouterr()
    set_rate = {**FIRST_ROUND, **own, "run__steps_per_round": "1"}
    run = small_run.run(tmp_path / "set", **{**set_rate, "ppo__lr": repr(30 * fits)})
    (event,) = events_of(run, "rate_far_out")
    assert event["lr"] == 30 * fits
    assert event.get("kl", math.inf) > event["budget"] / 2
    assert fits / 4 < event["suits"] < fits * 4
    said = capsys.readouterr().err
    assert said.index("WARNING: ppo.lr = ") < said.index("round 1  score")
    assert "far too large for this model" in said
    assert [step["control/lr"] for step in steps_of(run)] == [30 * fits], "it is theirs to set"
    run = small_run.run(tmp_path / "small", **{**set_rate, "ppo__lr": repr(fits / 300)})
    assert "far too small for this model" in capsys.readouterr().err


def test_a_rate_that_is_set_and_fits_stays_as_it_is_and_is_not_spoken_of(tmp_path: Path) -> None:
    run = small_run.run(tmp_path, ppo__lr_warmup_steps="2", run__rounds="1")
    assert [step["control/lr"] for step in steps_of(run)] == [0.0015, 0.003]
    assert all("control/kl_aim" not in step for step in steps_of(run))
    assert not events_of(run, "rate_far_out")
    assert "ppo.lr" not in RunDirectory(run).manifest()["rates"]


def test_by_default_a_round_ends_at_twice_the_target(tmp_path: Path) -> None:
    far = {"ppo__lr": "0.03", "run__rounds": "1", "run__steps_per_round": "6", "guard__mode": "off"}
    run = small_run.run(tmp_path / "default", **far, kl__hard_limit="-1.0", kl__budget_start="0.1")
    target = steps_of(run)[0]["control/kl_target"]
    (event,) = events_of(run, "kl_limit")
    assert event["limit"] == 2.0 * target
    assert len(steps_of(run)) < 6
    run = small_run.run(tmp_path / "off", **far, kl__hard_limit="0.0", kl__budget_start="0.1")
    assert len(steps_of(run)) == 6
    assert not events_of(run, "kl_limit")
