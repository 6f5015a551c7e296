"""`holdfast pipeline`: stages in any order, from any checkpoint, one ledger, one store, one report, resumable."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import small_run
from holdfast.checkpoint.store import CheckpointStore
from holdfast.cli.main import main
from holdfast.data.splits import is_heldout
from holdfast.errors import HoldfastError
from holdfast.preferences.store import PreferenceStore
from holdfast.stages.dpo_run import KEPT
from holdfast.stages.offline_dpo import OfflineDPO
from holdfast.stages.plan import plan_stages
from small_run import rows_of, settings

STAGES = "sft,reward,ppo,dpo@sft,dpo@ppo:round-0001"
CHANGES = {
    "run__rounds": "2", "rollout__max_new_tokens": "24", "sft__epochs": "6", "probes__every": "2", "dpo__epochs": "1",
}  # fmt: skip


def arguments(runs: Path, stages: str = STAGES, **changes: str) -> list[str]:
    return ["pipeline", "--runs", str(runs), "--name", "p", "--stages", stages, *settings(**CHANGES, **changes)]


@pytest.fixture(scope="module", autouse=True)
def ten_newest() -> Iterator[None]:
    """A DPO stage that goes on from PPO's policy learns from the ten newest labels here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.stages.pipeline.NEWEST_AFTER_PPO", 10)
        yield


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("pipeline")
    assert main(arguments(runs)) == 0
    return runs / "p"


def ledger_of(pipeline: Path) -> list[dict[str, Any]]:
    """Without the clock."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows_of(pipeline / "ledger.jsonl")]


def test_one_ledger_over_all_stages(unbroken: Path) -> None:
    ledger = ledger_of(unbroken)
    assert [row["stage"] for row in ledger] == ["sft", "reward", "ppo", "dpo", "dpo-2"]
    assert [row["start"] for row in ledger] == ["built in", "sft", "sft", "sft", "ppo:round-0001"]
    for row in ledger:
        assert {"labels", "audit_labels", "tokens_sampled", "tokens_trained"} <= row.keys()
        if row["kind"] != "reward":
            assert row["gold"]["low"] <= row["gold"]["mean"] <= row["gold"]["high"]
            assert row["length"]["count"] == row["kl"]["count"] == 8
            assert row["kind"] == "sft" or row["win_rate"]["count"] == 6
    assert all(row["tokens_trained"] > 0 for row in ledger)
    assert ledger[0]["win_rate"] is None  # nobody is asked to compare SFT with itself
    assert ledger[0]["kl"]["mean"] == pytest.approx(0.0, abs=1e-4)
    assert abs(ledger[3]["kl"]["mean"]) > 1e-3  # of eight answers, so of either sign


def test_every_label_is_in_one_store_and_counted_once(unbroken: Path) -> None:
    with PreferenceStore.open(f"sqlite:///{unbroken / 'run.db'}") as store:
        labels = store.counts().labels
    ledger = ledger_of(unbroken)
    assert sum(r["labels"] + r["audit_labels"] + r.get("measure_labels", 0) for r in ledger) == labels
    assert not list(unbroken.glob("stages/*/run.db"))


def test_stages_start_where_they_are_told(unbroken: Path) -> None:
    stages = unbroken / "stages"
    first = CheckpointStore(stages / "5-dpo-2" / "checkpoints").load("round-0000").tensors["policy"]
    then = CheckpointStore(stages / "3-ppo" / "checkpoints").load("round-0001").tensors["policy"]
    assert all((first[name] == then[name]).all() for name in first)


def test_dpo_after_ppo_leaves_out_what_ppo_has_left_behind(unbroken: Path) -> None:
    def learnt(stage: str) -> int:
        document: Any = CheckpointStore(unbroken / "stages" / stage / "kept").load(KEPT).documents["pairs"]
        return int(document["pairs"])

    assert learnt("4-dpo") > learnt("5-dpo-2") == 10


def test_the_same_probes_in_every_stage(unbroken: Path) -> None:
    sets = [json.loads((unbroken / "stages" / s / "probes.json").read_text()) for s in ("1-sft", "3-ppo", "4-dpo")]
    assert all(each["answers"] == sets[0]["answers"] for each in sets)
    assert [list(each["initial"]) for each in sets] == [["sft"], ["ppo"], ["dpo"]]
    for directory, stage in (("1-sft", "sft"), ("3-ppo", "ppo"), ("4-dpo", "dpo")):
        rows = rows_of(unbroken / "stages" / directory / "probes.jsonl")
        assert {row["stage"] for row in rows} == {stage}
    # PPO's last probe is DPO's first where the one starts from the other; here both DPO stages start elsewhere.
    sft = rows_of(unbroken / "stages" / "1-sft" / "probes.jsonl")[-1]["logprob"]
    dpo = rows_of(unbroken / "stages" / "4-dpo" / "probes.jsonl")[0]["logprob"]
    assert dpo["chosen"] == pytest.approx(sft["chosen"], abs=1e-4)


def test_one_report_over_all_stages(unbroken: Path) -> None:
    page = (unbroken / "report.html").read_text()
    for words in ("Stage by stage", "The stages side by side", "KL to SFT", "dpo-2", "stages/3-ppo/report.html"):
        assert words in page
    assert all((stage / "report.html").is_file() for stage in (unbroken / "stages").iterdir())


def test_a_pipeline_that_was_cut_resumes_to_the_same_end(
    unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(self: OfflineDPO) -> None:
        raise OSError("the machine stops")

    with monkeypatch.context() as patch:
        patch.setattr(OfflineDPO, "update", cut)
        assert main(arguments(tmp_path)) == 2
    assert [row["stage"] for row in ledger_of(tmp_path / "p")] == ["sft", "reward", "ppo"]
    assert main(["resume", str(tmp_path / "p"), "--json"]) == 0
    assert ledger_of(tmp_path / "p") == ledger_of(unbroken)


def test_distillation_is_a_stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = {"bestofn__prompts": "32", "sft__epochs": "20"}
    words = ["--stages", "sft,reward,distil", *settings(**{**CHANGES, **more}), "--json"]
    assert main(["pipeline", "--runs", str(tmp_path), "--name", "p", *words]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["stage"] for row in document["ledger"]] == ["sft", "reward", "distil"]
    assert document["ledger"][-1]["tokens_sampled"] > 0


@pytest.mark.parametrize(
    ("stages", "sentence"),
    [
        ("sft,rlhf", "names 'rlhf'; the stages are"),
        ("reward,ppo", "begins with reward, which needs a trained policy"),
        ("sft,dpo@ppo,ppo", "cannot start from ppo, which comes no earlier"),
        ("sft,distil", "needs a reward ensemble"),
    ],
)
def test_bad_input(stages: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(tmp_path, stages)) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize("labeller", ["people", "judge", "people+judge"])
def test_people_are_not_asked_by_a_pipeline(labeller: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    judge = {"judge__url": "http://127.0.0.1:1/v1", "judge__model": "tiny"}
    assert main(arguments(tmp_path, "sft,reward", world__labeller=labeller, **judge)) == 2
    said = capsys.readouterr().err
    assert f"A pipeline cannot ask {labeller} yet: have them label in `holdfast run`" in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_labels_of_stages_differ() -> None:
    plan = plan_stages(["sft", "dpo", "ppo", "dpo@sft", "dpo@runs/x@round-0003"])
    assert [stage.label for stage in plan] == ["sft", "dpo", "ppo", "dpo-2", "dpo-3"]
    assert plan[3].start == "sft"
    assert plan[4].start == "runs/x@round-0003"
    with pytest.raises(HoldfastError, match="is empty"):
        plan_stages([])


def test_a_stage_from_a_given_policy(unbroken: Path, tmp_path: Path) -> None:
    model = str(unbroken / "stages" / "1-sft" / "reference")
    words = small_run.settings(**CHANGES)
    assert main(["pipeline", "--runs", str(tmp_path), "--name", "p", "--policy", model, "--stages", "dpo", *words]) == 0
    row = ledger_of(tmp_path / "p")[0]
    assert row["start"] == model
    # The few labels of the probes are not taken for the labels to learn from.
    assert row["labels"] == 6 + 24


def test_a_stage_is_not_resumed_by_itself_and_a_pipeline_has_no_policy_of_its_own(
    unbroken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["resume", str(unbroken / "stages" / "3-ppo")]) == 2
    assert f"holdfast resume {unbroken}" in capsys.readouterr().err
    assert main(["export", str(unbroken), str(tmp_path / "model")]) == 2
    assert "name one of the stages" in capsys.readouterr().err
    assert main(["export", str(unbroken / "stages" / "4-dpo"), str(tmp_path / "model")]) == 0
    assert "DPO on labelled pairs" in (tmp_path / "model" / "README.md").read_text()


def test_files_of_one_s_own_without_a_labeller(tmp_path: Path) -> None:
    """Given preferences reach reward and DPO also where SFT comes first; nobody is asked, nobody knows the truth."""
    topics = ["noon", "nine", "ten", "two", "six", "one"]
    rows = [(f"when is {a} and {b}", f"It is {a}.", f"It is {b} today.") for a in topics for b in topics if a != b]
    files = {
        "prompts": [{"prompt": p} for p, _, _ in rows],
        "demonstrations": [{"prompt": p, "completion": good} for p, good, _ in rows],
        "preferences": [{"prompt": p, "chosen": good, "rejected": bad} for p, good, bad in rows],
    }
    words = []
    for name, content in files.items():
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in content))
        words += [f"--{name}", str(file)]
    small = [w for w in small_run.settings(**CHANGES, guard__mode="off")[1::2] if not w.startswith("world.")]
    given = [word for setting in small for word in ("--set", setting)]
    assert main(["pipeline", "--runs", str(tmp_path), "--name", "p", "--stages", "sft,reward,dpo", *words, *given]) == 0
    ledger = ledger_of(tmp_path / "p")
    assert [row["stage"] for row in ledger] == ["sft", "reward", "dpo"]
    # What was said about held-out prompts trains nothing.
    assert ledger[1]["labels"] == sum(not is_heldout(prompt, 0.1) for prompt, _, _ in rows) < len(rows)
    assert ledger[2]["gold"] is None
    assert ledger[2]["win_rate"] is None
    assert "pairs" in ledger[2]["note"]
