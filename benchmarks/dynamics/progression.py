"""SFT -> reward -> PPO -> DPO on the built-in world: what each stage does to gold, KL, length, and at what price.

Each seed is one `holdfast pipeline`, with DPO once after PPO and once beside it, from SFT, and with the best of n
answers of SFT's distilled into SFT.

python -m benchmarks progression       writes benchmarks/results/progression.json and progression.svg
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.record import keep, keep_figure, seeds_and_runs
from holdfast.charts.chart import ChartSpec, Series
from holdfast.cli.main import main as holdfast
from holdfast.lab.statistics import bootstrap
from holdfast.report.data import ProbeRow, read_run
from holdfast.report.probe_panels import side_by_side

STAGES = "sft,reward,ppo,dpo,dpo@sft,distil@sft"
SHOWN = {"sft": "1-sft", "ppo": "3-ppo", "dpo": "5-dpo-2"}


def run_pipeline(seed: int, runs: Path) -> list[dict[str, Any]]:
    """The ledger of one seed; a pipeline that has ended is read, and one that was cut goes on."""
    path = runs / f"pipeline-{seed}"
    words = ["resume", str(path)] if path.exists() else ["pipeline", "--runs", str(runs), "--name", path.name]
    if words[0] == "pipeline":
        words += ["--seed", str(seed), "--stages", STAGES, "--set", "run.threads=1"]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = holdfast([*words, "--json"])
    if code:
        raise SystemExit(f"the pipeline of seed {seed} ended with code {code}")
    return list(json.loads(said.getvalue())["ledger"])


def summary(ledgers: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Each stage over the seeds: means with intervals of the bootstrap."""
    found = []
    for rows in zip(*ledgers, strict=True):
        entry: dict[str, Any] = {"stage": rows[0]["stage"], "start": rows[0]["start"]}
        for name in ("gold", "win_rate", "kl", "length"):
            if all(row.get(name) for row in rows):
                entry[name] = asdict(bootstrap([row[name]["mean"] for row in rows]))
        for name in ("labels", "audit_labels", "measure_labels", "tokens_sampled", "tokens_trained"):
            entry[name] = fmean(row.get(name, 0) for row in rows)
        found.append(entry)
    return found


def mean_probes(runs: Path, seeds: range) -> list[ProbeRow]:
    """Probes of SFT, PPO and DPO from SFT, mean over the seeds."""
    found: list[ProbeRow] = []
    for stage, directory in SHOWN.items():
        by_seed = [
            {
                row.step: row
                for row in read_run(runs / f"pipeline-{seed}" / "stages" / directory).probes
                if row.stage == stage
            }
            for seed in seeds
        ]
        for step in [s for s in by_seed[0] if all(s in rows for rows in by_seed)]:
            rows = [own[step] for own in by_seed]
            kinds = rows[0].logprob
            found.append(
                ProbeRow(
                    stage,
                    step,
                    {kind: fmean(row.logprob[kind] for row in rows) for kind in kinds},
                    fmean(row.argmax or 0.0 for row in rows),
                    None,
                    None,
                )
            )
    return found


def charts(stages: list[dict[str, Any]], probes: list[ProbeRow]) -> list[ChartSpec]:
    rows = [row for row in stages if "gold" in row]
    names = ", ".join(f"{i} {row['stage']} (from {row['start']})" for i, row in enumerate(rows, start=1))
    xs = [float(i) for i in range(1, len(rows) + 1)]
    left = []
    for key, title, unit, colour in (
        ("gold", "Gold after each stage", "gold score", 1), ("kl", "KL to SFT", "nats per answer", 0),
        ("length", "Answer length", "tokens", 5),
    ):  # fmt: skip
        mean, low, high = ([row[key][end] for row in rows] for end in ("mean", "low", "high"))
        series = Series("", xs, mean, colour, low=low, high=high, bare=True, apart=True)
        left.append(ChartSpec(title=title, subtitle=names, unit=unit, x_label="stage", series=(series,)))
    return [*left, *side_by_side(probes)]


def main(words: Sequence[str]) -> None:
    seeds, runs = seeds_and_runs("progression", __doc__, words)
    ledgers = []
    for seed in seeds:
        ledgers.append(run_pipeline(seed, runs))
        golds = ", ".join(f"{row['stage']} {row['gold']['mean']:+.3f}" for row in ledgers[-1] if row.get("gold"))
        print(f"seed {seed}: gold {golds}", flush=True)
    stages = summary(ledgers)
    print(
        f"\n{'stage':<8} {'from':<9} {'gold':<26} {'people vs SFT':<26} {'KL to SFT':<26} {'length':<6} {'labels':>7}"
    )
    for row in stages:
        cells = "".join(f"{_estimate(row.get(name)):<27}" for name in ("gold", "win_rate", "kl"))
        length = f"{row['length']['mean']:.1f}" if "length" in row else "-"
        labels = row["labels"] + row["audit_labels"] + row["measure_labels"]
        print(f"{row['stage']:<8} {row['start']:<9} {cells}{length:<6} {labels:>7.0f}")
    keep("progression", {"seeds": list(seeds), "pipeline": STAGES, "stages": stages, "ledgers": ledgers})
    keep_figure("progression", charts(stages, mean_probes(runs, seeds)), columns=3)


def _estimate(value: dict[str, float] | None) -> str:
    return "-" if value is None else f"{value['mean']:+.3f} [{value['low']:+.3f}, {value['high']:+.3f}]"
