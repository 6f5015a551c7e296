"""The report of a pipeline as one HTML file: what each stage did, and the learning dynamics side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.charts.spec import ChartSpec, Series
from holdfast.checkpoint.files import read_json, write_atomic
from holdfast.report.data import ProbeRow, read_run
from holdfast.report.page import page
from holdfast.report.probe_panels import TITLES, Dynamics, dynamics, side_by_side
from holdfast.statistics import Share
from holdfast.text import counted
from holdfast.track.sinks import read_rows

# The table of stages: the names of its columns on the page and, shorter, in a terminal.
COLUMNS = {
    "Stage": "stage",
    "from": "from",
    "Gold": "gold",
    "Preferred to SFT": "vs SFT",
    "KL to SFT": "KL",
    "Length": "length",
    "Labels": "labels",
    "Audits": "audits",
    "Tokens sampled / trained on": "tokens",
}


def write_pipeline_report(run_dir: Path, out: Path | None = None) -> Path:
    """Write the report atomically to `out`, or to report.html in the pipeline's directory; return the path."""
    target = out if out is not None else run_dir / "report.html"
    write_atomic(target, render(run_dir).encode())
    return target


def render(run_dir: Path) -> str:
    """The whole page as text."""
    file = run_dir / "ledger.jsonl"
    ledger = list(read_rows(file)) if file.is_file() else []
    manifest = read_json(run_dir / "manifest.json")
    probes, groups = _probes(run_dir, ledger)
    return page(
        "pipeline",
        name=manifest["name"],
        facts=[(key, str(manifest[key])) for key in ("world", "policy", "seed", "started") if key in manifest],
        result=sentence(ledger),
        columns=list(COLUMNS),
        rows=[(row, _cells(row)) for row in ledger],
        charts=stage_charts(ledger),
        side=[replace(spec, width=355.0) for spec in side_by_side(probes)],
        dynamics=groups,
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
        rate = last["win_rate"]
        share = Share(rate["mean"], rate["count"]).of("comparison")
        parts.append(f"{rate['answered_by']} preferred the last policy to SFT in {share}")
    parts.append(f"it is {last['kl']['mean']:.1f} nats of KL from SFT")
    text = f"From {first['stage']} to {last['stage']}: " + ", ".join(parts)
    labels = sum(row["labels"] + _audits(row) for row in ledger)
    return f"{text}. All stages together took {counted(labels, 'label')}."


def stage_charts(ledger: Sequence[Mapping[str, Any]]) -> list[ChartSpec]:
    """What each stage left: gold, what is preferred, KL and length, with intervals."""
    rows = [row for row in ledger if row.get("kl")]
    names = ", ".join(f"{i} {row['stage']}" for i, row in enumerate(rows, start=1))
    specs = []
    for key, title, unit, percent, colour in (
        ("gold", "Gold after each stage", "gold score", False, 1),
        ("win_rate", "Preferred to SFT", "", True, 2),
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


def _cells(row: Mapping[str, Any]) -> list[str]:
    return [
        row["stage"],
        row["start"],
        _interval(row.get("gold"), "{:.2f}"),
        _share(row.get("win_rate")),
        _interval(row.get("kl"), "{:z.2f}"),
        _interval(row.get("length"), "{:.1f}"),
        f"{row['labels']:,}",
        f"{_audits(row):,}",
        f"{row['tokens_sampled']:,} / {row['tokens_trained']:,}",
    ]


def _audits(row: Mapping[str, Any]) -> int:
    """Labels of the guard's audits, and of the comparison with SFT, which not every stage has."""
    return int(row["audit_labels"]) + int(row.get("measure_labels", 0))


def ledger_table(ledger: Sequence[Mapping[str, Any]]) -> tuple[Sequence[str], list[list[str]]]:
    """The ledger for a terminal: names of columns, and rows of texts."""
    tokens = [f"{(row['tokens_sampled'] + row['tokens_trained']) / 1000:,.0f}k" for row in ledger]
    return list(COLUMNS.values()), [[*_cells(row)[:-1], count] for row, count in zip(ledger, tokens, strict=True)]


def _share(value: Mapping[str, Any] | None) -> str:
    """With its interval, which is not even around its middle, and its count."""
    if not value:
        return "–"
    return f"{value['mean']:.0%} ({value['low']:.0%}–{value['high']:.0%} of {value['count']:,})"


def _interval(value: Mapping[str, float] | None, form: str) -> str:
    if not value:
        return "–"
    return f"{form.format(value['mean'])} ±{form.format((value['high'] - value['low']) / 2)}"
