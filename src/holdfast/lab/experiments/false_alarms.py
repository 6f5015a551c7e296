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
        f"{number(result['watch'], '.1%')} of the rounds were watched. guard.false_alarm sets how often a run may be "
        "called that never falls."
    )


def dips(result: Result) -> str:
    """How many of the alarms came while gold stood fallen, if only for a while."""
    if not result["in_a_dip"]:
        return ""
    return f", {result['in_a_dip']} of them in a round in which gold stood fallen, to recover later"


def figure(result: Result) -> list[ChartSpec]:
    """Gold of the healthy runs, for a reader who doubts that they are."""
    sound = [run for run in result["runs"] if run["healthy"]]
    return [
        ChartSpec(
            title=f"{result['steady']['mean']:.0%} called hacking of {result['steady']['count']} runs that never fell, "
            f"{result['false_alarms']['mean']:.0%} of {len(sound)} that fell at most for a while",
            subtitle="Gold on held-out prompts by round, the first seeds of each arm.",
            unit="gold score",
            x_label="round",
            series=tuple(
                Series(f"{run['arm']}, {run['seed']}", list(range(len(run["gold"]))), run["gold"]) for run in sound[:6]
            ),
            width=860,
        )
    ]


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
