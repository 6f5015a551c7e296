"""Is the guard worth more than any published cure alone? Guarded against each, with the same labels and steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from holdfast.charts.chart import ChartSpec, Series
from holdfast.lab.cures import CURES, NO_CURE
from holdfast.lab.experiment import Experiment, Result, Results, Table, interval, number, side
from holdfast.lab.paired import arm_of, difference, differences, spent_by_arm, spent_table
from holdfast.lab.scenarios import AGAIN_ARM, FLAW_SCENARIOS, GUARDED_ARM, NO_KL, PLAIN
from holdfast.statistics import bootstrap
from holdfast.text import listed

GUARDED = GUARDED_ARM.name
ALONE = tuple(arm.name for arm in CURES)


def analyse(results: Results) -> Result:
    """Guarded less each of the others at the end, over all scenarios and in each; a pair is a scenario and a seed."""
    return {
        "differences": differences(results, GUARDED),
        "scenarios": {
            scenario: {
                arm: {
                    **arm_of(results.of(scenario, arm)),
                    "difference": difference(results.paired(scenario, GUARDED, arm)) if arm != GUARDED else None,
                }
                for arm in results.arms
            }
            for scenario in results.scenarios
        },
        "ends": {
            arm: asdict(bootstrap(ends))
            for arm in results.arms
            if (ends := [t.delivered for cell, t in results.each() if cell.arm == arm])
        },
        "costs": spent_by_arm(results),
    }


def tables(result: Result) -> list[Table]:
    rows = []
    for arm, spent in result["costs"].items():
        estimate, end = result["differences"].get(arm), result["ends"].get(arm)
        rows.append(
            [
                arm,
                number(end and end["mean"], "+.3f"),
                number(estimate and estimate["mean"], "+.3f"),
                interval(estimate),
                str(estimate["count"]) if estimate else "-",
                number(spent["labels"]),
                number(spent["seconds"]),
            ]
        )
    columns = ("arm", "gold at the end", "guarded less it", "95% interval", "pairs", "labels", "seconds (median)")
    return [
        Table("Guarded against each cure alone, over all scenarios", columns, rows),
        Table(
            "Guarded less each by scenario (* where the interval leaves out 0)",
            ("arm", *result["scenarios"]),
            [[arm, *(in_short(of.get(arm)) for of in result["scenarios"].values())] for arm in others(result)],
        ),
        spent_table(result["costs"]),
    ]


def others(result: Result) -> list[str]:
    return [arm for arm in result["costs"] if arm != GUARDED]


def in_short(of: Result | None) -> str:
    """A difference in one scenario, marked where it is beyond doubt."""
    if of is None or of["difference"] is None:
        return "-"
    return f"{of['difference']['mean']:+.2f}{'*' if side(of['difference']) else ''}"


def recommend(result: Result) -> str:
    known = {arm: estimate for arm, estimate in result["differences"].items() if arm in ALONE}
    if not known:
        return "No pair of a guarded run and one with a cure has ended, so nothing can be said yet."
    closest = min(known, key=lambda arm: known[arm]["mean"])
    cure, guarded = result["costs"][closest], result["costs"][GUARDED]
    words = [
        f"Of the cures alone {closest} comes closest: guarded less it is {known[closest]['mean']:+.3f} "
        f"{interval(known[closest])}. It spends {number(cure['labels'])} labels and {number(cure['seconds'])} seconds "
        f"a trial, guarded {number(guarded['labels'])} and {number(guarded['seconds'])}.",
    ]
    for where, place in ((1, "clearly above"), (0, "not clearly apart from"), (-1, "clearly below")):
        if names := [arm for arm, estimate in known.items() if side(estimate) == where]:
            words.append(f"Guarded ends {place} {listed(names)} on average.")
    for scenario, arms in result["scenarios"].items():
        below = [arm for arm in known if (of := arms[arm]["difference"]) is not None and side(of) < 0]
        if below:
            words.append(f"With {scenario} it ends clearly below {listed(below)}.")
    return " ".join(words)


def figure(result: Result) -> list[ChartSpec]:
    """One chart: guarded less each of the others, side by side, with intervals."""
    known: Mapping[str, Result] = result["differences"]
    names, places = list(known), list(range(len(known)))
    mean, low, high = ([known[arm][end] for arm in names] for end in ("mean", "low", "high"))
    return [
        ChartSpec(
            title="Guarded less each cure alone",
            subtitle="Gold at the end, mean over scenarios and seeds with its 95% interval; above 0 guarded is better.",
            unit="gold score",
            x_label="",
            x_names=names,
            x_range=(-0.5, max(1, len(names)) - 0.5),
            series=(Series("guarded less it", places, mean, apart=True, low=low, high=high, bare=True),),
            limit=Series("as good", [-0.5, max(1, len(names)) - 0.5], [0.0, 0.0], bare=True),
            width=1100,
        )
    ]


EXPERIMENT = Experiment(
    name="cures",
    question="Does the guarded run end better than any published cure alone?",
    scenarios=(*FLAW_SCENARIOS, PLAIN, NO_KL),
    arms=(GUARDED_ARM, AGAIN_ARM, NO_CURE, *CURES),
    analyse=analyse,
    tables=tables,
    recommend=recommend,
    figure=figure,
    columns=1,
)
