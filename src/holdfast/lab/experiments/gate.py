"""Does the gate keep bad refreshes out and let good ones in? Labellers go wrong from a round on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from statistics import fmean
from typing import Any

from holdfast.charts.chart import ChartSpec, Series
from holdfast.lab.experiment import Arm, Experiment, Result, Results, Table, interval, number
from holdfast.lab.mislabels import FROM_ROUND, HONEST, WAYS
from holdfast.lab.scenarios import PLAIN
from holdfast.statistics import share_of
from holdfast.text import counted

CLEAN = "clean"


def analyse(results: Results) -> Result:
    """Every refresh with what it did in truth; on bad labels only those since the labeller went wrong, which until then
    are the clean arm's over again."""
    refreshes: list[dict[str, Any]] = [
        {"labels": cell.arm, "seed": cell.seed, **row}
        for cell, trial in results.each()
        for row in trial.judged
        if cell.arm == CLEAN or row["round"] >= FROM_ROUND
    ]
    return of_refreshes(refreshes, results.arms)


def of_refreshes(refreshes: list[dict[str, Any]], arms: Iterable[str]) -> Result:
    """A refused refresh is tried again in the next round with the same labels and new ones, so a run's refreshes are
    not independent of each other: harmful ones are counted by run as well."""
    wrong = [r for r in refreshes if r["labels"] != CLEAN]
    harmful = [r for r in wrong if r["harmful"]]
    clean = [r for r in refreshes if r["labels"] == CLEAN]
    return {
        "refreshes": refreshes,
        "harmful_accepted": asdict(share_of(sum(r["accepted"] for r in harmful), len(harmful))),
        "harmful_runs": asdict(share_of(len(runs_of(r for r in harmful if r["accepted"])), len(runs_of(harmful)))),
        "clean_accepted": asdict(share_of(sum(r["accepted"] for r in clean), len(clean))),
        "kinds": {kind: kind_of([r for r in refreshes if r["labels"] == kind]) for kind in arms},
    }


def runs_of(refreshes: Iterable[dict[str, Any]]) -> set[tuple[str, int]]:
    return {(r["labels"], r["seed"]) for r in refreshes}


def kind_of(refreshes: list[dict[str, Any]]) -> Result:
    """The refreshes on one kind of labels: how many, what became of them, and how right the ensemble was."""
    accepted = [r for r in refreshes if r["accepted"]]
    harmful = [r for r in refreshes if r["harmful"]]

    return {
        "count": len(refreshes),
        "accepted": len(accepted),
        "harmful": len(harmful),
        "harmful_accepted": sum(r["accepted"] for r in harmful),
        "harmful_runs": len(runs_of(harmful)),
        "accepted_rightness": rightness_of(accepted),
        "refused_rightness": rightness_of([r for r in refreshes if not r["accepted"]]),
    }


def rightness_of(refreshes: list[dict[str, Any]]) -> Result:
    """Mean accuracy and calibration error before and after; None where there was no refresh."""
    named = [(what, when) for what in ("accuracy", "ece") for when in ("before", "after")]
    return {f"{what}_{when}": fmean(r[when][what] for r in refreshes) if refreshes else None for what, when in named}


def tables(result: Result) -> list[Table]:
    counts = [
        [kind, *(str(of[name]) for name in ("count", "accepted", "harmful", "harmful_runs", "harmful_accepted"))]
        for kind, of in result["kinds"].items()
    ]
    rightness = [
        [kind, what, *(number(of[f"{what}_rightness"][name], ".3f")
                       for name in ("accuracy_before", "accuracy_after", "ece_before", "ece_after"))]
        for kind, of in result["kinds"].items()
        for what in ("accepted", "refused")
    ]  # fmt: skip
    return [
        Table("Refreshes", ("labels", "refreshes", "accepted", "harmful", "in runs", "harmful accepted"), counts),
        Table(
            "How right the ensemble was, by the truth, on the policy's own answers",
            ("labels", "refreshes", "accuracy before", "after", "ECE before", "after"),
            rightness,
            2,
        ),
    ]


def recommend(result: Result) -> str:
    harmful, clean, by_run = (result[name] for name in ("harmful_accepted", "clean_accepted", "harmful_runs"))
    if not clean["count"]:
        return "No refresh has been judged, so nothing can be said yet."
    return (
        f"The gate let {harmful['mean']:.0%} of {harmful['count']} harmful refreshes in {interval(harmful, '.0%')} and "
        f"{clean['mean']:.0%} of {clean['count']} clean ones {interval(clean, '.0%')}. The harmful ones are of "
        f"{counted(by_run['count'], 'run')}, in which the same labels are tried again; by run it is "
        f"{by_run['mean']:.0%} {interval(by_run, '.0%')}. A refresh is harmful where it makes the ensemble less right, "
        "by the truth, about the answers of the present policy."
    )


def figure(result: Result) -> list[ChartSpec]:
    """By kind of labels, the change that each refresh made, accepted ones and refused ones."""
    charts = []
    for kind in result["kinds"]:
        rows = [r for r in result["refreshes"] if r["labels"] == kind]
        series = []
        for colour, (name, wanted) in enumerate((("accepted", True), ("refused", False))):
            changes = sorted(r["after"]["accuracy"] - r["before"]["accuracy"] for r in rows if r["accepted"] == wanted)
            if changes:
                places = [(i + 0.5) / len(changes) for i in range(len(changes))]
                series.append(Series(name, places, changes, colour, dots=True))
        of = result["kinds"][kind]
        charts.append(
            ChartSpec(
                title=f"{kind}: {of['accepted']} of {of['count']} accepted",
                subtitle="Change of accuracy by a refresh, in order; above 0 it did good.",
                unit="accuracy after less before",
                x_label="share of them",
                series=tuple(series),
            )
        )
    return charts


EXPERIMENT = Experiment(
    name="gate",
    question="Does the gate keep refreshes on bad labels out, and let those on good ones in?",
    scenarios=(PLAIN,),
    arms=tuple(
        Arm(
            name,
            ("guard.mode=advise", "gate.use=true"),
            words,
            labels=name if name in WAYS else HONEST,
            judge_refreshes=True,
        )
        for name, words in (
            (CLEAN, "labels as they are"),
            ("flipped-25", f"a quarter of the labels flipped from round {FROM_ROUND} on"),
            ("flipped-40", f"two fifths of the labels flipped from round {FROM_ROUND} on"),
            ("always-left", f"the first side, unread, from round {FROM_ROUND} on"),
            ("length-loving", f"the longer answer from round {FROM_ROUND} on"),
        )
    ),
    analyse=analyse,
    tables=tables,
    recommend=recommend,
    figure=figure,
)
