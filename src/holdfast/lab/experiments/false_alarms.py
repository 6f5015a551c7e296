"""How often is a healthy run called hacking? Runs in which proxy and gold both rise, watched by the guard."""

from __future__ import annotations

from dataclasses import asdict
from statistics import fmean

from holdfast.lab.experiment import Arm, Experiment, Result, Results, Table, number
from holdfast.lab.scenarios import PLAIN
from holdfast.lab.statistics import LEAST_RISE, fallen, onset, share
from holdfast.lab.trial import Trial, by_round
from holdfast.report.charts import ChartSpec, Series

# Each round is judged for itself; a mean at the end would hide that the last ones had fallen.
WATCHED = ("guard.mode=advise", "run.average=1")
MOST_SHOWN = 6


def healthy(trial: Trial) -> bool:
    """Proxy and gold both rise: gold ends above its start and never begins a fall that lasts; the proxy's last round is
    above its first. A rise of gold has to be more than the noise of measuring it."""
    proxy = by_round(trial, trial.proxy)
    return trial.heldout[-1] - trial.heldout[0] >= LEAST_RISE and onset(trial.heldout) is None and proxy[-1] > proxy[0]


def analyse(results: Results) -> Result:
    runs: list[Result] = [
        {
            "arm": cell.arm,
            "seed": cell.seed,
            "healthy": healthy(trial),
            "steady": healthy(trial) and not any(fallen(trial.heldout)),
            "called": (called := trial.first_hacking),
            "called_in_a_fall": None if called is None else fallen(trial.heldout)[called],
            "watch_rounds": sum(level == "watch" for level in trial.verdicts.values()),
            "rounds": len(trial.heldout) - 1,
            "gold": trial.heldout,
            "sentence": trial.sentences.get(trial.first_hacking or -1, ""),
        }
        for cell, trial in results.each()
    ]
    sound = [run for run in runs if run["healthy"]]
    alarms = [run for run in sound if run["called"] is not None]
    steady = [run for run in sound if run["steady"]]
    return {
        "runs": runs,
        "healthy": len(sound),
        "false_alarms": asdict(share(len(alarms), len(sound))),
        "in_a_dip": sum(run["called_in_a_fall"] is True for run in alarms),
        "steady": asdict(share(sum(run["called"] is not None for run in steady), len(steady))),
        "watch": fmean(run["watch_rounds"] / run["rounds"] for run in sound) if sound else None,
        "arms": {
            arm: {
                "runs": sum(run["arm"] == arm for run in runs),
                "healthy": sum(run["arm"] == arm for run in sound),
                "alarms": sum(run["arm"] == arm for run in alarms),
                "steady": sum(run["arm"] == arm for run in steady),
                "steady_alarms": sum(run["arm"] == arm and run["called"] is not None for run in steady),
            }
            for arm in results.arms
        },
    }


def tables(result: Result) -> list[Table]:
    counted = ("runs", "healthy", "alarms", "steady", "steady_alarms")
    rows = [[arm, *(str(of[name]) for name in counted)] for arm, of in result["arms"].items()]
    rows.append(["all", *(str(sum(of[name] for of in result["arms"].values())) for name in counted)])
    called = [
        [run["arm"], str(run["seed"]), number(run["called"]), "yes" if run["called_in_a_fall"] else "no",
         run["sentence"][:60]]
        for run in result["runs"]
        if run["healthy"] and run["called"] is not None
    ]  # fmt: skip
    columns = ("arm", "runs", "healthy", "called", "never fell", "called")
    return [
        Table("Healthy runs called hacking", columns, rows),
        *([Table("Those called", ("arm", "seed", "round", "gold fallen", "why"), called, 1)] if called else []),
    ]


def recommend(result: Result) -> str:
    alarms, steady = result["false_alarms"], result["steady"]
    if not alarms["count"]:
        return "No healthy run has ended, so nothing can be said yet."
    return (
        f"{alarms['mean']:.1%} of {alarms['count']} healthy runs were called hacking "
        f"[{alarms['low']:.1%}, {alarms['high']:.1%}]{dips(result)}. Of the {steady['count']} of them in which gold "
        f"never stood fallen at all {steady['mean']:.1%} were [{steady['low']:.1%}, {steady['high']:.1%}]. "
        f"{number(result['watch'], '.1%')} of the rounds were watched. guard.false_alarm bounds how often a run is "
        "called in which people like every round's policy as well as the last good one."
    )


def dips(result: Result) -> str:
    """How many of the alarms came while gold stood fallen, if only for a while."""
    if not result["in_a_dip"]:
        return ""
    return f", {result['in_a_dip']} of them in a round in which gold stood fallen, to recover later"


def figure(result: Result) -> list[ChartSpec]:
    """Gold around the verdict where a run was called, or of the first healthy runs where none was."""
    sound = [run for run in result["runs"] if run["healthy"]]
    called = [run for run in sound if run["called"] is not None]
    shown = called or sound[:MOST_SHOWN]
    words = "of the runs that were called; round 0 is the verdict's" if called else "of the first runs, by round"
    return [
        ChartSpec(
            title=title(result),
            subtitle=f"Gold on held-out prompts {words}.",
            unit="gold score",
            x_label="rounds from the verdict" if called else "round",
            series=tuple(
                Series(
                    f"{run['arm']}, {run['seed']}",
                    [n - (run["called"] or 0) for n in range(len(run["gold"]))],
                    run["gold"],
                )
                for run in shown[:MOST_SHOWN]
            ),
            width=860,
        )
    ]


def title(result: Result) -> str:
    """The chart's title says what it shows."""
    sound = [run for run in result["runs"] if run["healthy"]]
    kinds = [[run for run in sound if run["steady"] is steady] for steady in (True, False)]
    never, once = ((len(runs), sum(run["called"] is not None for run in runs)) for runs in kinds)
    return (
        f"Called hacking: {never[1]} of {never[0]} runs that never fell, {once[1]} of {once[0]} that fell and recovered"
    )


EXPERIMENT = Experiment(
    name="false_alarms",
    question="How often is a run called hacking in which nothing is wrong?",
    scenarios=(PLAIN,),
    arms=(
        Arm("default", WATCHED, "the defaults, watched"),
        Arm("beta 0.1", (*WATCHED, "kl.controller=fixed", "kl.beta=0.1"), "another way of holding KL"),
        Arm("worst case", (*WATCHED, "reward.aggregation=worst"), "another way of aggregating"),
        Arm("refresh every 2", (*WATCHED, "refresh.every_rounds=2"), "fewer refreshes"),
    ),
    analyse=analyse,
    tables=tables,
    recommend=recommend,
    figure=figure,
    seeds=14,
    columns=1,
)
