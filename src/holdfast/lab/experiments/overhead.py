"""What the guard costs in time: the same steps with it and without it, in turns, by default one at a time."""

from __future__ import annotations

from dataclasses import asdict

from holdfast.charts.chart import ChartSpec, Series
from holdfast.lab.experiment import Arm, Experiment, Result, Results, Table, interval, number
from holdfast.lab.scenarios import PLAIN
from holdfast.lab.trial import Trial
from holdfast.statistics import bootstrap
from holdfast.text import counted


def analyse(results: Results) -> Result:
    """Seconds with over seconds without, per seed; only of runs that did the same number of steps in one go."""
    pairs = [
        (on, off)
        for scenario in results.scenarios
        for on, off in results.paired(scenario, "guarded", "unguarded")
        if whole(on) and whole(off) and len(on.steps) == len(off.steps)
    ]
    rows: list[Result] = [
        {
            "seed": on.seed,
            "seconds_with": whole(on),
            "seconds_without": whole(off),
            "ratio": whole(on) / whole(off),
            "rounds_ratio": (on.seconds or 0.0) / (off.seconds or 1.0),
            "rounds_cpu_ratio": (on.cpu_seconds or 0.0) / (off.cpu_seconds or 1.0),
            "steps": len(on.steps),
        }
        for on, off in pairs
    ]
    ratios = ("ratio", "rounds_ratio", "rounds_cpu_ratio")
    return {
        "rows": rows,
        **{name: asdict(bootstrap([row[name] for row in rows])) if rows else None for name in ratios},
    }


def whole(trial: Trial) -> float:
    """Seconds of a run from nothing to its end; 0 where they are not known."""
    if trial.seconds is None or trial.prepared_seconds is None:
        return 0.0
    return trial.prepared_seconds + trial.seconds


def tables(result: Result) -> list[Table]:
    rows = [
        [str(row["seed"]), str(row["steps"]), number(row["seconds_with"], ".1f"), number(row["seconds_without"], ".1f"),
         number(row["ratio"], ".3f"), number(row["rounds_ratio"], ".3f"), number(row["rounds_cpu_ratio"], ".3f")]
        for row in result["rows"]
    ]  # fmt: skip
    columns = ("seed", "steps", "seconds with", "without", "ratio", "of the rounds alone", "their CPU time")
    return [Table("The guard in time", columns, rows)]


def recommend(result: Result) -> str:
    if result["ratio"] is None:
        return "No pair of runs did the same steps in one go, so nothing can be said yet."
    run, rounds = result["ratio"], result["rounds_ratio"]
    return (
        f"With the guard a run takes {run['mean']:.2f} times as long {interval(run, '.2f')}, its rounds alone, without "
        f"fine-tuning and the first ensemble, {rounds['mean']:.2f} {interval(rounds, '.2f')}, from "
        f"{counted(run['count'], 'pair')}."
    )


def figure(result: Result) -> list[ChartSpec]:
    seeds = [float(row["seed"]) for row in result["rows"]]
    mean = result["ratio"]["mean"] if result["ratio"] else 0.0
    return [
        ChartSpec(
            title=f"The guard takes {mean - 1:.0%} more time" if result["ratio"] else "No pair yet",
            subtitle="Seconds of a run from nothing to its end, with the guard and without it, by seed.",
            unit="seconds",
            x_label="seed",
            from_zero=True,
            series=(
                Series("with the guard", seeds, [row["seconds_with"] for row in result["rows"]], dots=True),
                Series("without", seeds, [row["seconds_without"] for row in result["rows"]], dots=True),
            ),
            width=640,
        )
    ]


EXPERIMENT = Experiment(
    name="overhead",
    question="How much longer does a run take with the guard?",
    scenarios=(PLAIN,),
    arms=(Arm("guarded", (), "the defaults"), Arm("unguarded", ("guard.mode=off",), "the same without the guard")),
    analyse=analyse,
    tables=tables,
    recommend=recommend,
    figure=figure,
    heldout=0,
    shares_references=False,
    workers=1,
    columns=1,
)
