"""Charts of the learning dynamics, and the report of a pipeline, from rows that may be torn or strange."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rows import event

from holdfast.report.data import read_run
from holdfast.report.page import write_report
from holdfast.report.pipeline_page import ledger_table, write_pipeline_report
from holdfast.report.probe_panels import dynamics, side_by_side


def probe(stage: str, step: int, **more: Any) -> dict[str, Any]:
    logprob = {"chosen": -10.0 - step, "rejected": -12.0 - 2 * step, "other": -20.0, "initial": -9.0}
    return {"stage": stage, "step": step, "round": 0, "logprob": logprob, "argmax": -5.0, "entropy": 0.5,
            "margin_gain": float(step), **more}  # fmt: skip


def write_run(path: Path, rows: list[dict[str, Any]], events: list[dict[str, Any]] | None = None) -> Path:
    path.mkdir(parents=True)
    (path / "manifest.json").write_text(json.dumps({"name": path.name, "holdfast_run": 1}))
    (path / "probes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (path / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in events or []))
    return path


def test_a_group_of_charts_for_each_stage(tmp_path: Path) -> None:
    signs = {"positive": {"before": -2.0, "after": -1.5}, "negative": {"before": -2.0, "after": -2.25}}
    rows = [probe("sft", 0), probe("sft", 25), probe("ppo", 0), probe("ppo", 25, rollout=signs)]
    run = read_run(write_run(tmp_path / "run", rows))
    groups = dynamics(run.probes)
    assert [group.title for group in groups] == ["SFT", "PPO"]
    assert len(groups[0].charts) == 3
    assert groups[1].charts[-1].title == "Tokens by the sign of their advantage"
    positive, negative = groups[1].charts[-1].series
    assert (list(positive.ys), list(negative.ys)) == ([0.5], [-0.25])
    compared = {series.name: list(series.ys) for series in groups[0].charts[0].series}
    assert compared == {"chosen": [-10.0, -35.0], "rejected": [-12.0, -62.0], "argmax": [-5.0, -5.0]}


def test_squeezing_is_marked_where_it_was_seen(tmp_path: Path) -> None:
    seen = event(25, 1, "squeezing", sentence="It squeezes.")
    run = read_run(write_run(tmp_path / "run", [probe("dpo", 0), probe("dpo", 25)], [seen]))
    (group,) = dynamics(run.probes, run.squeezed_at)
    assert [(mark.x, mark.label) for mark in group.charts[0].markers] == [(25.0, "squeezing")]
    page = write_report(run_dir := tmp_path / "run").read_text()
    assert "Learning dynamics" in page
    assert "Squeezing: It squeezes." in page
    assert run_dir.is_dir()


def test_a_resumed_stage_shows_the_line_that_was_kept(tmp_path: Path) -> None:
    rows = [probe("dpo", 0), probe("dpo", 25), {**probe("dpo", 25), "argmax": -1.0}]
    run = read_run(write_run(tmp_path / "run", rows))
    assert [(row.step, row.argmax) for row in run.probes] == [(0, -5.0), (25, -1.0)]


def test_strange_rows_are_left_out(tmp_path: Path) -> None:
    strange: list[dict[str, Any]] = [{"stage": 3, "step": 1}, {"stage": "dpo", "step": 1, "logprob": 5}]
    path = write_run(tmp_path / "run", [probe("dpo", 0), *strange])
    with (path / "probes.jsonl").open("a") as file:
        file.write('{"stage": "dpo", "step": 2, "logp')
    assert [row.step for row in read_run(path).probes] == [0]


def test_stages_side_by_side_have_the_same_lines(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", [probe(s, n) for s in ("sft", "ppo", "dpo") for n in (0, 5, 10, 15)]))
    charts = side_by_side(run.probes)
    assert [chart.title for chart in charts] == ["SFT", "PPO", "DPO"]
    assert len({tuple(series.name for series in chart.series) for chart in charts}) == 1
    # A model that knows nothing yet would flatten all the rest.
    assert [len(chart.series[0].xs) for chart in charts] == [3, 4, 4]
    assert charts[2].subtitle == "Chosen -15.0 nats over the stage, rejected -30.0."
    assert side_by_side([row for row in run.probes if row.stage == "sft"]) == []


def pipeline(tmp_path: Path, name: str = "p") -> Path:
    path = tmp_path / name
    mean = {"mean": 0.5, "low": 0.25, "high": 0.75, "count": 8}
    rate = mean | {"answered_by": "the judge"}
    spent = {"tokens_sampled": 10, "tokens_trained": 1990, "note": ""}
    ledger = [
        {"stage": "sft", "kind": "sft", "number": 1, "start": "built in", "labels": 0, "audit_labels": 0, "gold": mean,
         "kl": mean, "length": mean, "win_rate": rate, **spent},
        {"stage": "reward", "kind": "reward", "number": 2, "start": "sft", "labels": 1000, "audit_labels": 0, **spent},
        {"stage": "<dpo>", "kind": "dpo", "number": 3, "start": "sft", "labels": 0, "audit_labels": 3, "gold": None,
         "kl": mean, "length": mean, "win_rate": rate, "measure_labels": 4, **spent},
    ]  # fmt: skip
    write_run(path / "stages" / "1-sft", [probe("sft", 0), probe("sft", 5)])
    (path / "manifest.json").write_text(json.dumps({"name": name, "stage": "pipeline", "world": "<b>w</b>"}))
    (path / "ledger.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ledger))
    return path


def test_the_report_of_a_pipeline_escapes_what_it_shows(tmp_path: Path) -> None:
    path = pipeline(tmp_path)
    page = write_pipeline_report(path).read_text()
    assert "0.50 ±0.25" in page
    assert "<dpo>" not in page
    assert "<b>w</b>" not in page
    assert "the judge preferred the last policy to SFT in 4 of 8 comparisons (22% to 78%)" in page
    assert "All stages together took 1,007 labels." in page


def test_the_ledger_for_a_terminal(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (pipeline(tmp_path) / "ledger.jsonl").read_text().splitlines()]
    columns, table = ledger_table(rows)
    assert all(len(row) == len(columns) for row in table)
    assert table[0][:4] == ["sft", "built in", "0.50 ±0.25", "50% (25%–75% of 8)"]
    assert table[0][-1] == "2k"
    assert table[1][2] == "–"
