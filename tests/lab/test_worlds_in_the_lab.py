"""Experiments on other worlds than the built-in one: what is taken of them, and whole ones at toy size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import model_directories
from holdfast.cli.lab import plan_of, tag_of
from holdfast.cli.main import main, parser
from holdfast.config import load_config
from holdfast.lab.experiment import Plan, ResultCell
from holdfast.lab.experiments import all_experiments, experiment_named
from holdfast.lab.experiments.tuning import all_at_the_start
from holdfast.lab.results import check_plan, document_of
from holdfast.lab.scenarios import FIRST, PLAIN


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def planned(*arguments: str) -> Plan:
    args = parser().parse_args(["lab", "run", *arguments])
    return plan_of(args, experiment_named(args.name))


def titles(*arguments: str) -> list[str]:
    return [scenario.title for scenario in planned(*arguments).scenarios]


def test_the_built_in_world_has_what_it_had() -> None:
    assert len(titles("efficacy")) == len(FIRST)
    assert titles("efficacy", "--only", "no flaw") == ["no flaw"]
    assert planned("efficacy").settings == ()


def test_where_there_are_no_demonstrations_the_reward_is_hacked_by_itself() -> None:
    pytest.importorskip("harper")
    world = ("--world", "stories")
    assert titles("efficacy", *world) == ["no flaw", "no flaw, bare without KL"]
    assert titles("detection", *world) == ["no flaw, no KL", "no flaw"]
    assert titles("pitfalls", *world) == titles("gate", *world) == titles("tuning", *world) == ["no flaw"]
    # A flaw that can be there is, for who names it.
    assert titles("efficacy", *world, "--only", "keywords") == ["keywords, emergent"]
    check_plan(planned("efficacy", *world, "--only", "keywords", "--only", "prompt_echo"))
    assert main(["lab", "run", "efficacy", *world, "--only", "rare_tokens"]) == 2


def test_a_world_may_have_a_flaw_of_its_own() -> None:
    world = ("--world", "boat_race")
    assert titles("efficacy", *world) == ["arrows, planted", "no flaw"]
    assert titles("efficacy", *world, "--forms", "emergent") == ["arrows, emergent", "no flaw"]
    assert titles("detection", *world) == ["arrows, planted", "no flaw, no KL", "no flaw"]
    assert titles("pitfalls", *world) == ["arrows, planted", "no flaw"]
    assert titles("overhead", *world) == ["no flaw"]
    assert titles("efficacy", *world, "--flaw", "keywords") == ["keywords, emergent", "keywords, planted"]
    for name in all_experiments():
        check_plan(planned(name, *world))


def test_only_bare_goes_without_kl_and_guarded_is_one_trial() -> None:
    pytest.importorskip("harper")
    plan = planned("efficacy", "--world", "stories", "--policy", "models/mine")
    plain, without = (scenario.title for scenario in plan.scenarios)
    bare, free = (plan.job(ResultCell(title, "bare", 1000)) for title in (plain, without))
    assert (bare.config().kl.beta, free.config().kl.beta) == (0.05, 0.0)
    one, other = (plan.job(ResultCell(title, "guarded", 1000)) for title in (plain, without))
    assert one.path == other.path
    assert one.config().policy.path == "models/mine"


def test_sizes_are_the_worlds_and_what_is_asked_for_comes_after_them() -> None:
    def steps(*more: str) -> int:
        plan = planned("overhead", "--world", "boat_race", *more)
        return plan.job(ResultCell(PLAIN.title, "guarded", 1000)).config().rollout.max_new_tokens

    assert steps() == 24
    assert steps("--quick") == 12
    assert steps("--quick", "--set", "rollout.max_new_tokens=9") == 9


def test_the_tuned_arms_have_labels_for_a_run_of_the_size() -> None:
    # 2.25 times those at the start: 4,500 in the built-in world, as they were.
    assert all_at_the_start(load_config()) == ("reward.initial_comparisons=4500",)
    assert all_at_the_start(load_config(None, ["reward.initial_comparisons=100"])) == (
        "reward.initial_comparisons=225",
    )


def test_where_a_model_lies_is_kept_out_of_results(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["overhead", "--world", "boat_race", "--policy", "/somebodys/models/mine"]
    plan = planned(*words)
    from holdfast.lab.experiment import Results
    from holdfast.lab.results import command_of

    document = document_of(plan, Results([], [], [], {}), command_of(["lab", "run", *words]))
    assert "policy.path=mine" in document["settings"]
    assert document["made_by"]["command"] == "holdfast lab run overhead --world boat_race --policy mine"
    assert "somebodys" not in json.dumps(document)
    args = parser().parse_args(["lab", "run", *words])
    assert tag_of(args, experiment_named("overhead")) == "-boat_race-mine"


def efficacy(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, list[dict[str, Any]]]:
    code = main(["lab", "run", "efficacy", "--quick", "--workers", "1", "--set", "run.rounds=2", "--json", *arguments])
    told = capsys.readouterr()
    assert code == 0, told.err
    document = json.loads(told.out)
    assert document["failures"] == []
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in document["trials"]:
        rows.setdefault(row["arm"], []).append(row)
    assert rows.keys() == {"bare", "guarded", "guarded again", "tuned"}
    assert all(len(row["heldout"]) == 3 for row in document["trials"])
    return rows


@pytest.mark.slow
def test_efficacy_in_the_boat_race(capsys: pytest.CaptureFixture[str]) -> None:
    rows = efficacy(capsys, "--world", "boat_race")
    assert {row["scenario"] for row in rows["bare"]} == {"arrows, planted", "no flaw"}
    assert all(abs(gold) <= 1 for row in rows["guarded"] for gold in row["heldout"])


@pytest.mark.slow
def test_efficacy_on_a_pretrained_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A directory as a user brings it: no demonstration, no fine-tuning, and a tokenizer of its own."""
    pytest.importorskip("harper")
    model_directories.gpt2(tmp_path / "mine")
    rows = efficacy(capsys, "--world", "stories", "--policy", "mine")
    assert len(rows["bare"]) == len(rows["guarded"]) == 2
    plain, without = rows["bare"]
    # They set out from one model and part in KL alone; guarded is the same run twice.
    assert plain["heldout"][0] == without["heldout"][0]
    assert [row["delivered"] for row in rows["guarded"]] == [rows["guarded"][0]["delivered"]] * 2
