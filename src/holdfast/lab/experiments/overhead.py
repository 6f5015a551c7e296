"""What the guard costs in time: the same steps with it, without it, and bare, in turns, by default one at a time.

*unguarded* is the default without the guard alone: an ensemble that is refreshed behind the gate, and no audits. *bare*
is what is usual: one reward model that stands still. On a machine that does other work as well, CPU time tells more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from holdfast.charts.chart import ChartSpec, Series
from holdfast.lab.experiment import Arm, Experiment, Result, Results, Table, interval, number
from holdfast.lab.scenarios import BARE_ARM, PLAIN
from holdfast.lab.trial import Trial
from holdfast.statistics import bootstrap
from holdfast.text import counted


def analyse(results: Results) -> Result:
    """Seconds with over seconds without, per seed; only of runs that did the same number of steps in one go."""
    pairs, bare = _same_steps(results, "unguarded"), _same_steps(results, "bare")
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
    over_bare: list[Result] = [
        {
            "seed": on.seed,
            "seconds_guarded": whole(on),
            "seconds_bare": whole(off),
            "bare_ratio": whole(on) / whole(off),
            "bare_cpu_ratio": whole_cpu(on) / (whole_cpu(off) or 1.0),
            "steps": len(on.steps),
        }
        for on, off in bare
    ]
    return {
        "rows": rows,
        **_means(rows, "ratio", "rounds_ratio", "rounds_cpu_ratio"),
        "bare_rows": over_bare,
        **_means(over_bare, "bare_ratio", "bare_cpu_ratio"),
    }


def _same_steps(results: Results, other: str) -> list[tuple[Trial, ...]]:
    """Guarded runs and those of another arm."""
    return [
        (on, off)
        for scenario in results.scenarios
        for on, off in results.paired(scenario, "guarded", other)
        if whole(on) and whole(off) and len(on.steps) == len(off.steps)
    ]


def _means(rows: Sequence[Result], *ratios: str) -> Result:
    return {name: asdict(bootstrap([row[name] for row in rows])) if rows else None for name in ratios}


def whole_cpu(trial: Trial) -> float:
    """The same in CPU time."""
    return (trial.prepared_cpu_seconds or 0.0) + (trial.cpu_seconds or 0.0)


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
    bare = [
        [str(row["seed"]), str(row["steps"]), number(row["seconds_guarded"], ".1f"), number(row["seconds_bare"], ".1f"),
         number(row["bare_ratio"], ".3f"), number(row["bare_cpu_ratio"], ".3f")]
        for row in result.get("bare_rows", ())  # results of before have none
    ]  # fmt: skip
    beside = ("seed", "steps", "seconds guarded", "bare", "ratio", "in CPU time")
    beside_it = [Table("Guarded beside bare", beside, bare)] if bare else []
    return [Table("The guard in time", columns, rows), *beside_it]


def recommend(result: Result) -> str:
    if result["ratio"] is None:
        return "No pair of runs did the same steps in one go, so nothing can be said yet."
    run, rounds = result["ratio"], result["rounds_ratio"]
    return (
        f"With the guard a run takes {run['mean']:.2f} times as long {interval(run, '.2f')}, its rounds alone, without "
        f"fine-tuning and the first ensemble, {rounds['mean']:.2f} {interval(rounds, '.2f')}, from "
        f"{counted(run['count'], 'pair')}." + beside_bare(result)
    )


def beside_bare(result: Result) -> str:
    """The same against one reward model that stands still."""
    if not result.get("bare_rows"):
        return ""
    run, cpu = result["bare_ratio"], result["bare_cpu_ratio"]
    return (
        f" A guarded run takes {run['mean']:.2f} times as long as a bare one {interval(run, '.2f')}, and "
        f"{cpu['mean']:.2f} times the CPU time {interval(cpu, '.2f')}."
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
    arms=(
        Arm("guarded", (), "the defaults"),
        Arm("unguarded", ("guard.mode=off",), "the same without the guard"),
        BARE_ARM,
    ),
    analyse=analyse,
    tables=tables,
    recommend=recommend,
    figure=figure,
    heldout=0,
    shares_references=False,
    workers=1,
    columns=1,
)
