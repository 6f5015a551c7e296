"""The figures of the policy that a run delivers, wherever they are shown."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from rows import event, write_lines
from safetensors.torch import load_file
from test_report_page import without_config

import small_run
from holdfast.cli.main import main
from holdfast.cli.session import show_result
from holdfast.config import load_config
from holdfast.preferences.comparison import Choice, Comparison, Label
from holdfast.report.data import RunData, read_run
from holdfast.report.delivered import delivered
from holdfast.report.words import result, tiles
from holdfast.run.directory import RunDirectory
from holdfast.run.run import Run
from holdfast.web.runs import audited, figures


class Conservative:
    """Prefers the reference to whatever was trained; called a judge, as one that a model answers for is."""

    name, called = "judge:conservative", "the judge"

    def label(self, comparisons: Sequence[Comparison]) -> list[Label]:
        return [Label(c.id, self.name, self.choose(c)) for c in comparisons]

    def choose(self, c: Comparison) -> Choice:
        newest = f"round-{c.a.provenance.round:04d}"
        return Choice.B if c.a.provenance.policy_version == newest else Choice.A


@pytest.fixture(scope="module")
def undone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both rounds are found hacked, and the run ends where it began."""
    path = tmp_path_factory.mktemp("undone") / "run"
    pairs = [word for word in small_run.settings(audit__pairs="24", run__rounds="2") if word != "--set"]
    run = Run.create(path, load_config(None, pairs), labeller=Conservative())
    run.train()
    run.report()
    return path


def document(run: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    capsys.readouterr()
    show_result(RunDirectory.open(run), as_json=True)
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def test_a_run_back_at_the_reference_has_the_figures_of_the_reference_everywhere(
    undone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = small_run.rows_of(undone / "metrics.jsonl")
    assert abs(steps[-1]["objective/kl"]) > 0.01, "the policy that was undone had moved"
    first = steps[0]["objective/scores"]  # drawn before the first update, so by the reference
    assert first != pytest.approx(steps[-1]["objective/scores"], abs=0.005)

    assert main(["export", str(undone), str(tmp_path / "out")]) == 0
    given, kept = (load_file(path / "model.safetensors") for path in (undone / "reference", tmp_path / "out"))
    assert all(torch.equal(given[name], kept[name]) for name in given)

    shown = document(undone, capsys)
    kl, proxy = (shown["figures"][name] for name in ("KL to reference", "proxy (ensemble score)"))  # type: ignore[index]
    assert kl["end"] == 0.0
    assert proxy["end"] == first
    assert shown["delivered"]["policy"] == "the reference"  # type: ignore[index]
    assert shown["delivered"]["preferred_to_reference"] is None  # type: ignore[index]

    show_result(RunDirectory.open(undone), as_json=False)
    terminal = capsys.readouterr().out
    assert "KL to reference             0.00   0.00  mean of 8 answers" in terminal
    assert "delivers                  the reference" in terminal
    assert "not asked: it is the reference" in terminal
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| KL to reference (nats per answer) | 0.00 | 0.00 | mean of 8 answers |" in card
    assert f"| proxy (ensemble score) | {first:.2f} | {first:.2f} |" in card.replace("-0.00", "0.00")

    run = read_run(undone)
    values = {tile.label: tile.value for tile in tiles(run)}
    assert values["KL to reference"] == "0.00"
    assert values["Delivers"] == "reference"
    (refreshes,) = [tile.note for tile in tiles(run) if tile.label == "Refreshes"]
    assert f"ensemble learnt from {steps[0]['ensemble/labels']:.0f} labels" in refreshes
    assert result(run).startswith("The run stands on the reference. ")
    compared = dict(figures({"run": run}))
    assert compared["KL to reference"] == ["0.00"]
    assert compared["preferred to the reference"] == ["–"]
    assert compared["delivers"] == ["the reference"]


def test_a_judge_is_not_called_people(undone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [row.text for row in read_run(undone).events]
    assert any("the judge preferred the reference in " in line for line in lines)
    show_result(RunDirectory.open(undone), as_json=False)
    said = " ".join([*lines, capsys.readouterr().out])
    assert "people" not in said.lower()
    page = re.sub(r"<style>.*?</style>", "", without_config((undone / "report.html").read_text()), flags=re.S)
    words = re.sub(r"<[^>]*>", " ", page).lower()
    assert "the judge preferred the policy" in " ".join(words.split())
    assert "people" not in words


def test_a_figure_is_of_as_many_answers_as_the_batch_had_when_it_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_run.run(tmp_path, run__rounds="1", guard__mode="off", ppo__samples_per_prompt="2")
    config = run / "config.toml"

    def count() -> object:
        return document(run, capsys)["figures"]["KL to reference"]["count"]  # type: ignore[index]

    assert count() == 16
    config.write_text(config.read_text().replace("batch = 8", "batch = 12"))
    assert count() == 16, "nobody has gone on with it"
    assert main(["resume", str(run), "--changed"]) == 0
    assert count() == 16
    assert main(["resume", str(run), "--rounds", "2"]) == 0
    assert count() == 24
    for name, answers in (("round-0001", 16), ("round-0002", 24)):
        assert main(["export", str(run), str(tmp_path / name), "--checkpoint", name]) == 0
        assert (
            f"Measured: proxy, KL and length on {answers} answers in step"
            in (tmp_path / name / "README.md").read_text()
        )


def test_the_reference_is_no_nat_from_itself(guarded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert small_run.rows_of(guarded / "metrics.jsonl")[0]["objective/kl"] != 0.0, "what is measured is rounding"
    assert document(guarded, capsys)["figures"]["KL to reference"]["start"] == 0.0  # type: ignore[index]


def test_scores_of_two_versions_are_not_called_a_movement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = small_run.run(tmp_path, run__rounds="2", guard__mode="off", gate__use="false")
    steps = small_run.rows_of(run / "metrics.jsonl")
    assert (steps[0]["ensemble/version"], steps[-1]["ensemble/version"]) == (1, 2)
    capsys.readouterr()
    show_result(RunDirectory.open(run), as_json=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert "proxy by v2 of the ensemble; at the start v1, another scale" in shown
    assert "measured proxy, KL and length on 8 answers in step 4" in shown, "gold is of others"
    words = result(read_run(run))
    assert re.match(r"Proxy was \S+ by v1 of the ensemble and is \S+ by v2, which are two scales; gold", words)
    (tile,) = [tile for tile in tiles(read_run(run)) if tile.label == "Proxy score"]
    assert re.fullmatch(r"by v2; the reference's was \S+ by v1, another scale", tile.note)
    assert document(run, capsys)["delivered"]["reference_version"] == 1  # type: ignore[index]
    assert main(["export", str(run), str(tmp_path / "out")]) == 0
    assert "The reference's is by version 1, which is another scale." in (tmp_path / "out" / "README.md").read_text()


# ---- which policy it is, by what the files tell


AUDIT = {"labels": 48, "answered_by": "people"}


def rate(wins: int, pairs: int = 100) -> dict[str, object]:
    value = wins / pairs
    return {"reference_rate": {"value": value, "low": value - 0.1, "high": value + 0.1}, "reference_pairs": pairs}


def made(path: Path, steps: int, events: Sequence[dict[str, object]]) -> RunData:
    """A run of ten steps a round whose every figure tells its step, with a new version of the ensemble each round."""
    rows = [
        {
            "step": step, "round": (step + 9) // 10, "objective/scores": step / 10, "objective/kl": float(step),
            "response/length_mean": 10.0 + step, "ensemble/version": (step + 9) // 10, "control/lr": 0.1,
        }
        for step in range(1, steps + 1)
    ]  # fmt: skip
    path.mkdir(parents=True, exist_ok=True)
    write_lines(path / "metrics.jsonl", rows)
    ends = [event(step, step // 10, "round_finished") for step in range(10, steps + 1, 10)]
    write_lines(path / "events.jsonl", sorted([*ends, *events], key=lambda row: int(str(row["step"]))))
    return read_run(path)


def back(start: int, to: int, *spans: tuple[int, int], **more: object) -> dict[str, object]:
    """A rollback from one step to that of another round's end."""
    fields = {"to": f"round-{to // 10:04d}", "step_from": start, "step_to": to, "undone": [list(s) for s in spans]}
    return event(start, start // 10, "rollback", **fields, **more)


def told(run: RunData) -> tuple[str, float, str, int]:
    """The policy, its KL, its rate as *Compare* has it, and the version that scored it."""
    policy = delivered(run)
    compared = dict(figures({"run": run}))
    assert compared["delivers"] == [policy.policy]
    assert compared["proxy"] == [f"{policy.step / 10 or 0.1:.2f} by v{policy.reward_version}"]
    return policy.policy, policy.figures["KL to reference"].end, compared["preferred to the reference"][0], policy.step


def test_the_rate_is_of_an_audit_of_the_policy_itself_in_the_table_as_in_the_chart(tmp_path: Path) -> None:
    audits = [event(10, 1, "audit", **AUDIT, **rate(79)), event(20, 2, "audit", **AUDIT, **rate(48))]
    run = made(tmp_path, 20, [*audits, back(20, 10, (10, 20))])
    assert told(run) == ("the policy of round 1", 10.0, "79% of 100 pairs by people", 10)
    (line,) = audited({"run": run}).series
    assert line.ys == [0.79]
    kept = made(tmp_path / "kept", 20, audits)
    assert told(kept) == ("the policy of round 2", 20.0, "48% of 100 pairs by people", 20)


def test_a_rollback_of_a_rollback_stands_where_the_ledger_says(tmp_path: Path) -> None:
    audits = [event(10 * n, n, "audit", **AUDIT, **rate(50 + n)) for n in (1, 2, 3)]
    # From 20 back to 10, on to 30, and then to where the run was before it went back: an owner may choose that.
    forth = [back(20, 10, (10, 20)), back(30, 20, (20, 30), by="anna")]
    assert told(made(tmp_path, 30, [*audits, *forth])) == (
        "the policy of round 2",
        20.0,
        "52% of 100 pairs by people",
        20,
    )
    # Back once more, to the beginning.
    assert told(made(tmp_path / "more", 30, [*audits, *forth, back(30, 0, (0, 30))]))[:3] == ("the reference", 0.0, "–")


def test_steps_after_a_rollback_count_again(tmp_path: Path) -> None:
    run = made(tmp_path, 30, [back(20, 0, (0, 20))])
    assert told(run)[:2] == ("the policy of round 3", 30.0)
    start = run.known("response/length_mean")[0][1]
    assert delivered(run).figures["answer length"].start == start, "the reference's, though the first round was undone"
    assert delivered(run).steps_undone == 20


def test_a_mean_of_policies_has_its_own_figures_until_it_is_undone(tmp_path: Path) -> None:
    mean = event(20, 2, "averaged", policies=3, kl=3.5, score=2.0, length=9.0)
    assert told(made(tmp_path, 20, [mean]))[:2] == ("the mean of 3 policies up to round 2", 3.5)
    assert told(made(tmp_path / "undone", 20, [mean, back(20, 10, (10, 20))]))[:2] == ("the policy of round 1", 10.0)


def test_a_round_that_was_cut_is_called_so(tmp_path: Path) -> None:
    assert told(made(tmp_path, 13, []))[0] == "the policy of step 13, within round 2"


# ---- what a checkpoint holds


def kl_row(card: str) -> str:
    (row,) = [line for line in card.splitlines() if line.startswith("| KL to reference")]
    return row.split("|")[3].strip()


def test_the_card_has_the_figures_of_its_checkpoint_and_of_nothing_after_it(guarded: Path, tmp_path: Path) -> None:
    run = shutil.copytree(guarded, tmp_path / "run")
    steps = small_run.rows_of(run / "metrics.jsonl")
    with (run / "metrics.jsonl").open("a") as file:  # the run went on and was cut before it could save
        file.write(json.dumps({**steps[-1], "step": 11, "objective/kl": 99.0}) + "\n")
    names = sorted(path.name for path in (run / "checkpoints").iterdir() if path.is_dir())
    for n, name in enumerate(names):
        assert main(["export", str(run), str(tmp_path / f"out{n}"), "--checkpoint", name]) == 0
    cards = {name: (tmp_path / f"out{n}" / "README.md").read_text() for n, name in enumerate(names)}
    assert "99" not in kl_row(cards["round-0005"])
    assert "It is the mean of 2 policies up to round 5." in cards["round-0005"]
    earlier = cards["round-0004"]
    assert "It is the policy of round 4." in earlier
    assert kl_row(earlier) == f"{steps[7]['objective/kl']:z.2f}"
    assert "The guard's last word up to this checkpoint: healthy; 1 rollback." in earlier
