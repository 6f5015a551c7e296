"""The best that stands still: which aggregation and which beta the tuned arm gets. Only for seeds below 100."""

from __future__ import annotations

from dataclasses import asdict

from holdfast.charts.chart import ChartSpec, Series
from holdfast.config import Config
from holdfast.lab.experiment import Arm, Experiment, Result, Results, Table, interval
from holdfast.lab.scenarios import FLAW_SCENARIOS, PLAIN_ASIDE, STANDS_STILL
from holdfast.statistics import bootstrap, chance_of_best

AGGREGATIONS = ("mean", "worst", "uncertainty")
BETAS = (0.1, 0.2, 0.4, 0.8)
# About what a guarded run spends in all, for each label at its start: by default 4500 for 2000, with 100 in each of
# seven rounds, its audits and checks.
SPENT = 2.25


def all_at_the_start(usual: Config) -> tuple[str, ...]:
    """As many labels at the start as a guarded run of this size spends in all."""
    return (f"reward.initial_comparisons={round(SPENT * usual.reward.initial_comparisons)}",)


def name_of(aggregation: str, beta: float) -> str:
    return f"{aggregation}, beta {beta}"


def analyse(results: Results) -> Result:
    """Mean gold at the end over scenarios and seeds, for those that have ended in every arm."""
    rows = [row for scenario in results.scenarios for row in results.paired(scenario, *results.arms)]
    columns = {arm: [row[i].delivered for row in rows] for i, arm in enumerate(results.arms)}
    if not rows:
        return {"ends": {}, "chance": {}, "best": ""}
    ends = {arm: asdict(bootstrap(values)) for arm, values in columns.items()}
    return {"ends": ends, "chance": chance_of_best(columns), "best": max(ends, key=lambda arm: ends[arm]["mean"])}


def tables(result: Result) -> list[Table]:
    rows = [
        [arm, f"{e['mean']:+.3f}", interval(e), f"{result['chance'][arm]:.0%}"] for arm, e in result["ends"].items()
    ]
    return [Table("Ensembles that stand still", ("arm", "gold at the end", "95% interval", "chance of best"), rows)]


def recommend(result: Result) -> str:
    if not result["best"]:
        return "No seed has ended in every arm, so nothing can be said yet."
    best = result["best"]
    return (
        f"The tuned arm is {best}: best in the mean over scenarios and seeds, and in {result['chance'][best]:.0%} of "
        "resamples. TUNED_AGGREGATION and TUNED_BETA in lab/scenarios.py hold it."
    )


def figure(result: Result) -> list[ChartSpec]:
    series = [
        Series(
            aggregation,
            list(BETAS),
            [result["ends"].get(name_of(aggregation, beta), {}).get("mean") for beta in BETAS],
            dots=True,
        )
        for aggregation in AGGREGATIONS
    ]
    return [
        ChartSpec(
            title=f"Standing still, {result['best'] or 'nothing yet'} is best",
            subtitle="Gold at the end against beta, mean over scenarios and seeds.",
            unit="gold score",
            x_label="beta",
            series=tuple(series),
            width=640,
        )
    ]


EXPERIMENT = Experiment(
    name="tuning",
    question="Which aggregation and which beta are best for an ensemble that stands still?",
    scenarios=(*FLAW_SCENARIOS, PLAIN_ASIDE),
    arms=tuple(
        Arm(
            name_of(aggregation, beta),
            (
                f"reward.aggregation={aggregation}",
                "kl.controller=fixed",
                f"kl.beta={beta}",
                *STANDS_STILL,
                "guard.mode=off",
            ),
            adapts=all_at_the_start,
        )
        for aggregation in AGGREGATIONS
        for beta in BETAS
    ),
    analyse=analyse,
    tables=tables,
    recommend=recommend,
    figure=figure,
    seeds=2,
)
