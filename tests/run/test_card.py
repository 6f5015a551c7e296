"""The card of an exported model: figures, code that runs, data and labels, what a hub reads."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard

import model_directories
import small_run
from holdfast.cli.main import main
from holdfast.config import load_config
from holdfast.people.accounts import AccountStore
from holdfast.preferences.comparison import Choice, Label
from holdfast.preferences.store import PreferenceStore
from holdfast.run.card import Base, base_of, hub_datasets


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run.run(tmp_path_factory.mktemp("card"), run__rounds="1")


def exported(run: Path, out: Path, *more: str) -> str:
    assert main(["export", str(run), str(out), *more]) == 0
    return (out / "README.md").read_text(encoding="utf-8")


def said_by_the_code(card: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the examples print, each in turn, run where the card lies as somebody would who copies them."""
    monkeypatch.chdir(directory)
    torch.manual_seed(0)  # they draw an answer, and a model that knows next to nothing may draw an empty one
    names: dict[str, object] = {}
    printed = []
    for block in re.findall(r"```python\n(.*?)```", card, flags=re.S):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(block, names)
        printed.append(out.getvalue())
    return printed


def test_the_card_is_one_that_the_hub_reads_with_the_evaluation_and_its_interval(run: Path, tmp_path: Path) -> None:
    card = ModelCard(exported(run, tmp_path / "out"))
    data = card.data
    assert (data.library_name, data.pipeline_tag, data.license) == ("transformers", "text-generation", "unknown")
    assert {"holdfast", "rlhf", "ppo"} <= set(data.tags)
    (audit,) = small_run.events_of(run, "audit")
    (rate,) = [one for one in data.eval_results if one.metric_type == "win_rate"]
    interval = audit["reference_rate"]
    assert rate.metric_value == pytest.approx(interval["value"], abs=1e-6)
    assert rate.metric_args == {
        "low": interval["low"], "high": interval["high"], "pairs": audit["reference_pairs"],
        "answered_by": "the simulated labeller",
    }  # fmt: skip
    assert "Write it into `license:` above" in card.content


def test_the_examples_run_with_and_without_the_chat_template(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = exported(run, tmp_path / "out")
    assert "With the chat template, as in training:" in card
    loaded, templated, plain = said_by_the_code(card, tmp_path / "out", monkeypatch)
    assert loaded == ""
    assert templated.strip()
    assert plain.strip()


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_the_example_of_a_model_without_a_chat_template_runs(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = getattr(model_directories, kind)(tmp_path / "models--acme--tiny" / "snapshots" / "1")
    (model / "README.md").write_text("---\nlicense: 'cc-by-4.0'\n---\nA model.\n")
    path = json.dumps(str(model))
    trained = small_run.run(tmp_path, policy__path=path, run__rounds="1", run__steps_per_round="1", guard__mode="off")
    card = exported(trained, tmp_path / "out")
    assert "The tokenizer has no chat template." in card
    _, plain = said_by_the_code(card, tmp_path / "out", monkeypatch)
    assert plain.strip()
    data = ModelCard(card).data
    assert (data.base_model, data.license) == ("acme/tiny", "cc-by-4.0")
    assert str(tmp_path) not in card, "paths of a machine are nobody else's"
    assert "No guard watched over the run." in card


def test_the_example_of_adapters_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = small_run.run(tmp_path, policy__lora_rank="2", run__rounds="1", run__steps_per_round="1")
    card = exported(trained, tmp_path / "out", "--adapters")
    assert ModelCard(card).data.library_name == "peft"
    assert all(text.strip() for text in said_by_the_code(card, tmp_path / "out", monkeypatch)[1:])


def test_labels_are_counted_by_who_gave_them_and_people_are_not_named(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    with PreferenceStore.open(f"sqlite:///{copy / 'run.db'}") as store:
        AccountStore(store.database).create("anna", "a long enough password", "labeller")
        asked = [item.comparison.id for item in store.labelled()]
        own = store.counts().labels
        store.add_labels([Label(key, "anna", Choice.A) for key in asked[:3]])
        store.add_labels([Label(key, "judge:llama-9b", Choice.TIE) for key in asked[:2]])
    before = exported(copy, tmp_path / "before")
    assert f"| labels by the simulated labeller | {own} labels |" in before, "it has learnt from none of the others"
    assert "| labels |" not in before, "one number stands there once"
    assert main(["resume", str(copy), "--rounds", "2"]) == 0
    with PreferenceStore.open(f"sqlite:///{copy / 'run.db'}") as store:
        own = store.counts().labels - 5
    card = exported(copy, tmp_path / "out")
    assert f"| labels | {own + 5} |" in card
    assert "| labels by people | 3 labels of 1 |" in card
    assert "| labels by the judge (llama-9b) | 2 labels |" in card
    assert f"| labels by the simulated labeller | {own} labels |" in card
    assert "anna" not in card


def test_the_card_of_a_policy_that_the_run_did_not_keep_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_run.run(tmp_path, checkpoint__keep="9", guard__mode="off")
    kept = exported(run, tmp_path / "kept", "--checkpoint", "round-0002")
    assert main(["rollback", str(run), "round-0001", "--reason", "too verbose"]) == 0
    assert main(["resume", str(run)]) == 0
    capsys.readouterr()
    card = exported(run, tmp_path / "out", "--checkpoint", "round-0002")
    words = "The run later undid this policy, in round 4: the command line asked for it: too verbose."
    assert f"## Figures\n\n{words}\n" in card
    assert f"note: {words}" in capsys.readouterr().err
    assert card.replace(f"{words}\n\n", "") == kept, "nothing else that came later is told of it"
    assert "later undid" not in exported(run, tmp_path / "newest")


def test_a_missing_label_store_is_said_and_none_is_made(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    (copy / "run.db").unlink()
    assert "unknown: the label store is not there" in exported(copy, tmp_path / "out")
    assert not (copy / "run.db").exists()


def test_a_run_of_dpo_tells_how_many_pairs_it_was_measured_on(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["dpo", "--runs", str(tmp_path), "--name", "d", "--policy", str(run), *small_run.settings(dpo__epochs="1")]
    assert main(words) == 0
    (ready,) = small_run.events_of(tmp_path / "d", "pairs_ready")
    held_out = ready["held_out"]
    assert f" of {held_out} pairs (" in capsys.readouterr().out
    data = ModelCard(exported(tmp_path / "d", tmp_path / "out")).data
    (right,) = [one for one in data.eval_results if one.metric_type == "accuracy"]
    assert right.metric_args["pairs"] == held_out
    assert 0 <= right.metric_args["low"] <= right.metric_value <= right.metric_args["high"] <= 1


@pytest.mark.parametrize(
    "front",
    [
        "",
        "---\nlicense:\n- mit\n- other\n---\n",
        "no front matter\nlicense: mit\n",
        "---\nlicense: <b>\n---\n",
        "---\n" * 9,
    ],
)
def test_a_licence_that_is_not_told_is_not_made_up(front: str, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(front)
    (tmp_path / "config.json").write_text("[" * 100_000)
    assert base_of(str(tmp_path)) == Base()


def test_what_a_base_tells_of_itself(run: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"_name_or_path": "acme/base-1"}')
    (tmp_path / "README.md").write_text("---\nlanguage: en\nlicense: mit\n---\n")
    assert base_of(str(tmp_path)) == Base("acme/base-1", "mit")
    assert base_of("smollm2").licence == "apache-2.0"
    assert base_of(str(run)) == base_of(f"{run}@round-0001") == Base(), "a run's base is what the run started from"


def test_data_sets_of_the_hub_are_named_and_files_are_not() -> None:
    settings = ["data.prompts=hub:acme/prompts@main:train", "data.preferences=/home/me/pairs.jsonl"]
    assert hub_datasets(load_config(None, settings).data) == ["acme/prompts"]
