"""The report of a pipeline as one HTML file: what each stage did, and the learning dynamics side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.charts.chart import line_chart
from holdfast.charts.spec import ChartSpec, Series
from holdfast.checkpoint.files import write_atomic
from holdfast.report.data import ProbeRow, read_run
from holdfast.report.page import page
from holdfast.report.probe_panels import TITLES, Dynamics, dynamics, side_by_side


@dataclass(frozen=True)
class StageRow:
    """A row of the table of stages, as texts."""

    label: str
    start: str
    gold: str
    people: str
    kl: str
    length: str
    labels: str
    audits: str
    tokens: str
    note: str
    report: str


def write_pipeline_report(run_dir: Path, out: Path | None = None) -> Path:
    """Write the report atomically to `out`, or to report.html in the pipeline's directory; return the path."""
    target = out if out is not None else run_dir / "report.html"
    write_atomic(target, render(run_dir).encode())
    return target


def read_ledger(run_dir: Path) -> list[dict[str, Any]]:
    file = run_dir / "ledger.jsonl"
    return [json.loads(line) for line in file.read_text("utf-8").splitlines() if line] if file.is_file() else []


def render(run_dir: Path) -> str:
    """The whole page as text."""
    ledger = read_ledger(run_dir)
    manifest = json.loads((run_dir / "manifest.json").read_text("utf-8"))
    probes, groups = _probes(run_dir, ledger)
    return page(
        "pipeline",
        name=str(manifest.get("name") or run_dir.name),
        facts=[(key, str(manifest[key])) for key in ("world", "policy", "seed", "started") if key in manifest],
        result=sentence(ledger),
        rows=[_row(row) for row in ledger],
        charts=[line_chart(spec, inline=True) for spec in stage_charts(ledger)],
        side=[line_chart(replace(spec, width=355.0), inline=True) for spec in side_by_side(probes)],
        dynamics=[(group.title, [line_chart(spec, inline=True) for spec in group.charts]) for group in groups],
    )


def _probes(run_dir: Path, ledger: Sequence[Mapping[str, Any]]) -> tuple[list[ProbeRow], list[Dynamics]]:
    """The probes of all stages, and each stage's own charts."""
    rows: list[ProbeRow] = []
    groups: list[Dynamics] = []
    for entry in ledger:
        directory = run_dir / "stages" / f"{entry['number']}-{entry['stage']}"
        if not directory.is_dir():
            continue
        run = read_run(directory)
        # A stage that comes twice has a name of its own the second time.
        name = str(entry["stage"])
        own = [replace(row, stage=name) if name not in TITLES else row for row in run.probes]
        rows += own
        groups += dynamics(own, run.squeezed_at)
    return rows, groups


def sentence(ledger: Sequence[Mapping[str, Any]]) -> str:
    """What became of the policy from its first measured stage to its last."""
    known = [row for row in ledger if row.get("kl")]
    if len(known) < 2:
        return "Not enough stages have ended to compare them."
    first, last = known[0], known[-1]
    parts = []
    if first.get("gold") and last.get("gold"):
        parts.append(f"gold went from {first['gold']['mean']:.2f} to {last['gold']['mean']:.2f}")
    if last.get("win_rate"):
        parts.append(f"people prefer the last policy to SFT in {last['win_rate']['mean']:.0%} of comparisons")
    parts.append(f"it is {last['kl']['mean']:.1f} nats of KL from SFT")
    text = f"From {first['stage']} to {last['stage']}: " + ", ".join(parts)
    labels = sum(row["labels"] + row.get("audit_labels", 0) + row.get("measure_labels", 0) for row in ledger)
    return f"{text}. All stages together took {labels:,} labels."


def stage_charts(ledger: Sequence[Mapping[str, Any]]) -> list[ChartSpec]:
    """What each stage left: gold, people's opinion, KL and length, with intervals."""
    rows = [row for row in ledger if row.get("kl")]
    names = ", ".join(f"{i} {row['stage']}" for i, row in enumerate(rows, start=1))
    specs = []
    for key, title, unit, percent, colour in (
        ("gold", "Gold after each stage", "gold score", False, 1),
        ("win_rate", "People prefer it to SFT", "", True, 2),
        ("kl", "KL to SFT", "nats per answer", False, 0),
        ("length", "Answer length", "tokens", False, 5),
    ):
        known = [(i, row[key]) for i, row in enumerate(rows, start=1) if row.get(key)]
        xs = [float(i) for i, _ in known]
        mean, low, high = ([float(value[end]) for _, value in known] for end in ("mean", "low", "high"))
        series = Series("", xs, mean, colour, low=low, high=high, bare=True, apart=True)
        specs.append(
            ChartSpec(
                title=title, subtitle=f"After {names}. Bars: 95% interval over prompts.", unit=unit, x_label="stage",
                series=(series,), percent=percent,
            )
        )  # fmt: skip
    return [spec for spec in specs if spec.has_data()]


def _row(row: Mapping[str, Any]) -> StageRow:
    return StageRow(
        label=str(row["stage"]),
        start=str(row.get("start", "")),
        gold=_interval(row.get("gold"), "{:.2f}"),
        people=_interval(row.get("win_rate"), "{:.0%}"),
        kl=_interval(row.get("kl"), "{:z.2f}"),
        length=_interval(row.get("length"), "{:.1f}"),
        labels=f"{row.get('labels', 0):,}",
        audits=f"{row.get('audit_labels', 0) + row.get('measure_labels', 0):,}",
        tokens=f"{row.get('tokens_sampled', 0):,} / {row.get('tokens_trained', 0):,}",
        note=str(row.get("note") or ""),
        report=f"stages/{row['number']}-{row['stage']}/report.html",
    )


def ledger_table(ledger: Sequence[Mapping[str, Any]]) -> tuple[Sequence[str], list[list[str]]]:
    """The ledger for a terminal: names of columns, and rows of texts."""
    columns = ("stage", "from", "gold", "people vs SFT", "KL", "length", "labels", "audits", "tokens")
    rows = []
    for entry in ledger:
        row = _row(entry)
        tokens = entry.get("tokens_sampled", 0) + entry.get("tokens_trained", 0)
        cells = [row.label, row.start, row.gold, row.people, row.kl, row.length, row.labels, row.audits]
        rows.append([*cells, f"{tokens / 1000:,.0f}k"])
    return columns, rows


def _interval(value: Mapping[str, float] | None, form: str) -> str:
    if not value:
        return "–"
    if "%" in form:  # an interval of shares is not even around its middle
        return f"{form.format(value['mean'])} ({form.format(value['low'])}–{form.format(value['high'])})"
    return f"{form.format(value['mean'])} ±{form.format((value['high'] - value['low']) / 2)}"
