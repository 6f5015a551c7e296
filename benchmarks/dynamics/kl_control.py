"""Does adaptive control hold the KL it is asked to hold? Targets 2, 5 and 10 nats per answer.

python -m benchmarks kl_control          writes benchmarks/results/holds_kl.json and holds_kl.svg
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean

from benchmarks.record import keep, keep_figure, seeds_and_runs
from benchmarks.trials import run_trials
from holdfast.charts.chart import ChartSpec, Series
from holdfast.lab.trial import Job

TARGETS = (2, 5, 10)
# A reward that stands still: one that is refreshed keeps pulling the policy back, so that beta alone cannot bring KL
# to 10, and what is measured here is the controller. 120 steps give a KL of 10 time to be reached.
SETTINGS = ("run.steps_per_round=15", "refresh.every_rounds=0", "preferences.per_round=0", "guard.mode=off")


def main(words: Sequence[str]) -> None:
    seeds, runs = seeds_and_runs("kl_control", __doc__, words, seeds=1)
    print("kl.controller = adaptive, 120 steps, the ensemble standing still")
    cells = [(target, seed) for target in TARGETS for seed in seeds]
    trials = run_trials(
        [
            Job((*SETTINGS, "kl.controller=adaptive", f"kl.target={t}"), seed, runs / f"target-{t}-seed-{seed}")
            for t, seed in cells
        ]
    )
    rows = []
    print(f"\n{'target':>7} {'seed':>6} {'mean KL, last half':>19} {'off by':>8}")
    for (target, seed), trial in zip(cells, trials, strict=True):
        mean = fmean(trial.kl[len(trial.kl) // 2 :])
        off = mean / target - 1
        rows.append({"target": target, "seed": seed, "mean_kl_last_half": mean, "off": off})
        print(f"{target:>7} {seed:>6} {mean:>19.2f} {off:>+8.0%}")
    within = sum(abs(float(row["off"])) <= 0.2 for row in rows)
    print(f"\nwithin 20% of the target in {within} of {len(rows)} runs")
    keep("holds_kl", {"rows": rows, "within_20_percent": within, "trials": [asdict(t) for t in trials]})
    keep_figure(
        "holds_kl",
        [
            ChartSpec(
                title="KL to the reference under adaptive control",
                subtitle="Targets of 2, 5 and 10 nats per answer; one line per run.",
                unit="nats per answer",
                series=tuple(
                    Series(f"target {target}, {seed}", trial.steps, trial.kl, smooth=5)
                    for (target, seed), trial in zip(cells, trials, strict=True)
                ),
                width=860,
            )
        ],
    )
