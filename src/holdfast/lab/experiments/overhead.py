"""What the guard costs in time: the same steps with it and without it, in turns, one at a time."""

from __future__ import annotations

from dataclasses import asdict

from holdfast.lab.experiment import Arm, Experiment, Result, Results, Table, number
from holdfast.lab.scenarios import PLAIN
from holdfast.lab.statistics import bootstrap
from holdfast.lab.trial import Trial
from holdfast.report.charts import ChartSpec, Series


def analyse(results: Results) -> Result:
    """Seconds with over seconds without, per seed; only of runs that did the same number of steps in one go."""
    pairs = [
        (on, off)
        for scenario in results.scenarios
        for on, off in results.paired(scenario, "guarded", "unguarded")
        if on.seconds and off.seconds and len(on.steps) == len(off.steps)
    ]
    rows: list[Result] = [
        {
            "seed": on.seed,
            "seconds_with": on.seconds,
            "seconds_without": off.seconds,
            "ratio": ratio(on, off, "seconds"),
            "cpu_ratio": ratio(on, off, "cpu_seconds"),
            "steps": len(on.steps),
        }
        for on, off in pairs
    ]
    return {
        "rows": rows,
        "ratio": asdict(bootstrap([row["ratio"] for row in rows])) if rows else None,
        "cpu_ratio": asdict(bootstrap([row["cpu_ratio"] for row in rows])) if rows else None,
    }


def ratio(on: Trial, off: Trial, clock: str) -> float:
    return float(getattr(on, clock) / getattr(off, clock))


def tables(result: Result) -> list[Table]:
    rows = [
        [str(row["seed"]), str(row["steps"]), number(row["seconds_with"], ".1f"), number(row["seconds_without"], ".1f"),
         number(row["ratio"], ".3f"), number(row["cpu_ratio"], ".3f")]
        for row in result["rows"]
    ]  # fmt: skip
    columns = ("seed", "steps", "seconds with", "without", "ratio", "of CPU time")
    return [Table("The guard in time", columns, rows)]


def recommend(result: Result) -> str:
    if result["ratio"] is None:
        return "No pair of runs did the same steps in one go, so nothing can be said yet."
    wall, cpu = result["ratio"], result["cpu_ratio"]
    return (
        f"With the guard a run takes {wall['mean']:.2f} times as long [{wall['low']:.2f}, {wall['high']:.2f}], by CPU "
        f"time {cpu['mean']:.2f} [{cpu['low']:.2f}, {cpu['high']:.2f}], from {wall['count']} pairs."
    )


def figure(result: Result) -> list[ChartSpec]:
    seeds = [float(row["seed"]) for row in result["rows"]]
    mean = result["ratio"]["mean"] if result["ratio"] else 0.0
    return [
        ChartSpec(
            title=f"The guard takes {mean - 1:.0%} more time" if result["ratio"] else "No pair yet",
            subtitle="Seconds of a run with the guard and without it, by seed.",
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
    workers=1,
    columns=1,
)
