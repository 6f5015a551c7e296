"""`holdfast dpo` from end to end on a small model: figures, probes, resume bit for bit, bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import small_run
from holdfast.checkpoint.store import CheckpointStore
from holdfast.cli.main import main
from holdfast.preferences.comparison import Choice, Comparison, Label, LabelledComparison, Provenance, Response
from holdfast.preferences.store import PreferenceStore
from holdfast.reward.repeats import repeat_of
from holdfast.stages.dpo_run import clear_cut, newest
from holdfast.stages.offline_dpo import OfflineDPO
from small_run import events_of, rows_of, settings

LAST = "round-0002"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "sft"
    assert main(["sft", str(path), *settings()]) == 0
    return path


def arguments(model: Path, runs: Path, **changes: str) -> list[str]:
    return ["dpo", "--policy", str(model), "--runs", str(runs), "--name", "d", *settings(probes__every="2", **changes)]


@pytest.fixture(scope="module")
def unbroken(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("unbroken")
    assert main(arguments(model, runs)) == 0
    return runs / "d"


def result_of(run: Path) -> dict[str, object]:
    files = {f"{name}.jsonl": (run / f"{name}.jsonl").read_bytes() for name in ("metrics", "samples", "gold", "probes")}
    snapshot = CheckpointStore(run / "checkpoints").load(LAST)
    document: Any = json.loads(json.dumps(snapshot.documents["parts"]))
    del document["files"]["events.jsonl"]
    tensors = {f"{s}/{n}": t.numpy().tobytes() for s, group in snapshot.tensors.items() for n, t in group.items()}
    return {**files, **tensors, "document": document}


def test_figures_are_written_for_every_update(unbroken: Path) -> None:
    rows = rows_of(unbroken / "metrics.jsonl")
    assert [row["step"] for row in rows] == list(range(7))
    assert rows[1]["rewards/margins"] == pytest.approx(0.0, abs=1e-3)
    assert rows[-1]["rewards/margins"] > 0.05
    assert {"objective/kl", "response/length_mean", "rewards/heldout_accuracies"} <= rows[-1].keys()
    assert {row["split"] for row in rows_of(unbroken / "gold.jsonl")} == {"heldout", "samples"}
    assert (unbroken / "report.html").is_file()


def test_probes_are_of_the_training_pairs(unbroken: Path) -> None:
    rows = rows_of(unbroken / "probes.jsonl")
    assert [row["step"] for row in rows] == [0, 2, 4, 6]
    assert {row["stage"] for row in rows} == {"dpo"}
    assert set(rows[0]["logprob"]) == {
        "chosen", "rejected", "chosen_varied", "rejected_varied", "other", "permuted", "random", "initial",
    }  # fmt: skip
    assert rows[-1]["margin_gain"] > rows[1]["margin_gain"] > 0.0


@pytest.mark.parametrize("call", [1, 3, 5])
def test_a_run_that_was_cut_resumes_bit_for_bit(
    call: int, model: Path, unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update, calls = OfflineDPO.update, []

    def cut(self: OfflineDPO) -> None:
        calls.append(1)
        if len(calls) == call:
            raise OSError("the machine stops")
        update(self)

    with monkeypatch.context() as patch:
        patch.setattr(OfflineDPO, "update", cut)
        patch.setattr("holdfast.checkpoint.pace.SHARE", 1e9)  # however little time has passed
        assert main(arguments(model, tmp_path)) == 2
    assert main(["resume", str(tmp_path / "d")]) == 0
    whole, again = result_of(unbroken), result_of(tmp_path / "d")
    assert [name for name in whole if whole[name] != again[name]] == []


def test_reference_log_probs_are_computed_once(
    model: Path, unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = CheckpointStore(unbroken / "kept").load("reference-logprobs")
    assert len(kept.tensors["logprobs"]["chosen"]) == kept.documents["pairs"]["pairs"]  # type: ignore[index,call-overload]

    def never(*args: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr("holdfast.stages.dpo_run.answer_logprobs", never)
    assert main(["resume", str(unbroken)]) == 0


def test_fine_tuning_on_both_answers_comes_first(model: Path, unbroken: Path, tmp_path: Path) -> None:
    assert main(arguments(model, tmp_path, dpo__sft_both="2")) == 0
    first, plain = (rows_of(run / "probes.jsonl")[0]["logprob"] for run in (tmp_path / "d", unbroken))
    assert first["chosen"] > plain["chosen"]
    assert first["rejected"] > plain["rejected"]
    assert events_of(tmp_path / "d", "sft_finished")[0]["demonstrations"] % 2 == 0


LOSSES = [
    {"dpo__loss": "ipo"},
    {"dpo__loss": "simpo"},
    {"dpo__label_smoothing": "0.2"},
    {"dpo__nll_weight": "1.0"},
]


@pytest.mark.parametrize("changes", LOSSES, ids=str)
def test_every_loss_learns_and_differs(changes: dict[str, str], model: Path, unbroken: Path, tmp_path: Path) -> None:
    assert main(arguments(model, tmp_path, **changes)) == 0
    rows, plain = rows_of(tmp_path / "d" / "metrics.jsonl"), rows_of(unbroken / "metrics.jsonl")
    assert rows[-1]["loss/dpo"] != plain[-1]["loss/dpo"]
    assert rows[-1]["rewards/margins"] > rows[1]["rewards/margins"]


def test_a_policy_may_be_a_run_s_checkpoint(unbroken: Path, tmp_path: Path) -> None:
    spec = f"{unbroken}@round-0001"
    assert main(["dpo", "--policy", spec, "--runs", str(tmp_path), "--name", "e", *settings(dpo__epochs="1")]) == 0
    first = CheckpointStore(tmp_path / "e" / "checkpoints").load("round-0000").tensors["policy"]
    then = CheckpointStore(unbroken / "checkpoints").load("round-0001").tensors["policy"]
    assert all((first[name] == then[name]).all() for name in then)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ([], "give --policy DIR"),
        (["--policy", "gone"], "no model directory gone"),
        (["--policy", "gone@round-0001"], "no run directory gone"),
        (["--policy", "MODEL", "--set", "dpo.beta=0"], "dpo.beta is 0.0"),
        (["--policy", "MODEL", "--set", "dpo.loss=hinge"], "one of sigmoid, ipo, simpo"),
        (["--policy", "MODEL", "--set", "reward.initial_comparisons=0"], "at least 2 labelled comparisons"),
    ],
)
def test_bad_input(
    more: list[str], sentence: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(model) if word == "MODEL" else word for word in more]
    small = small_run.settings()
    assert main(["dpo", "--runs", str(tmp_path), "--name", "d", *small, *words]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("labeller", ["people", "judge"])
def test_people_are_not_asked_by_dpo(
    labeller: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = {"judge__url": "http://127.0.0.1:1/v1", "judge__model": "tiny"}
    capsys.readouterr()
    assert main(arguments(model, tmp_path, world__labeller=labeller, **judge)) == 2
    assert f"`holdfast dpo` cannot ask {labeller} yet" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_what_was_asked_again_is_learnt_from_once() -> None:
    origin = Provenance("reference", 0, 0)
    first = Comparison("k/r0000-00001", "Hello?", Response("one", origin), Response("two", origin), 0)
    again = repeat_of(first, 2)
    items = [LabelledComparison(c, (Label(c.id, "anna", Choice.A),)) for c in (first, again)]
    assert [item.comparison.id for item in clear_cut(items)] == [first.id]


def test_only_the_newest_labels_are_learnt_from_where_asked(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(model, tmp_path / "all")) == 0
    assert main(arguments(model, tmp_path / "some", dpo__newest="6")) == 0
    learnt = {name: kept_pairs(tmp_path / name / "d") for name in ("all", "some")}
    assert learnt["all"] > learnt["some"] == 6


def kept_pairs(run: Path) -> int:
    document: Any = CheckpointStore(run / "kept").load("reference-logprobs").documents["pairs"]
    return int(document["pairs"])


def test_the_newest_are_those_answered_last(tmp_path: Path) -> None:
    with PreferenceStore.open(f"sqlite:///{tmp_path / 'run.db'}") as store:
        written = Provenance("somebody", 0, 0)
        ids = ["d", "a", "c", "b"]
        store.add_comparisons([Comparison(i, "p", Response("x", written), Response("y", written), 0) for i in ids])
        for i in ids:
            store.add_labels([Label(i, "anna", Choice.A)])
        store.add_labels([Label("d", "ben", Choice.A)])
        labelled = store.labelled()
        found = newest(labelled, 2, store, store.watermark())
        assert [item.comparison.id for item in found] == ["b", "c"], "a second opinion does not make it newer"
        assert (
            newest(labelled, 0, store, store.watermark()) == newest(labelled, 9, store, store.watermark()) == labelled
        )
