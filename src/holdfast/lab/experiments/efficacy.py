"""Does the guard help? Guarded against what is usual, and against the best that stands still."""

from __future__ import annotations

from dataclasses import asdict

from holdfast.charts.chart import ChartSpec, Series
from holdfast.lab.experiment import Experiment, Result, Results, Table, interval, number, side
from holdfast.lab.fall import kept_its_peak
from holdfast.lab.paired import arm_of, differences, spent_by_arm, spent_table
from holdfast.lab.scenarios import (
    AGAIN_ARM,
    BARE_ARM,
    BARE_NO_KL,
    FLAW_SCENARIOS,
    GUARDED_ARM,
    PLAIN_ASIDE,
    TUNED_ARM,
)
from holdfast.lab.trial import Trial
from holdfast.statistics import share_of

SHOWN = ("bare", "tuned", "guarded")


def analyse(results: Results) -> Result:
    """Pair by pair, then over all pairs. A pair is one scenario and one seed."""
    pairs = [
        {"scenario": scenario, "seed": guarded.seed, **pair_of(bare, guarded)}
        for scenario in results.scenarios
        for bare, guarded in results.paired(scenario, "bare", "guarded")
    ]
    reached = [bool(pair["reaches_best"]) for pair in pairs]
    kept = [bool(pair["kept_peak"]) for pair in pairs]
    return {
        "pairs": pairs,
        "reaches_best": asdict(share_of(sum(reached), len(reached))),
        "kept_peak": asdict(share_of(sum(kept), len(kept))),
        "differences": differences(results, "guarded"),
        "arms": {
            scenario: {arm: arm_of(results.of(scenario, arm)) for arm in results.arms} for scenario in results.scenarios
        },
        "costs": spent_by_arm(results),
    }


def pair_of(bare: Trial, guarded: Trial) -> Result:
    """What is asked of each pair: the guarded end against the bare run's best at any round, and its own peak.

    The peak may be of a policy that was rolled back: one that was taken back for nothing is a loss as well.
    """
    return {
        "bare_best": max(bare.heldout),
        "bare_end": bare.delivered,
        "guarded_start": guarded.heldout[0],
        "guarded_peak": guarded.peak,
        "guarded_end": guarded.delivered,
        "reaches_best": guarded.delivered >= max(bare.heldout),
        "kept_peak": kept_its_peak(guarded.heldout[0], guarded.peak, guarded.delivered),
        "rollbacks": len(guarded.rollbacks),
    }


def tables(result: Result) -> list[Table]:
    ends = [
        [
            scenario,
            arm,
            number(of["end"] and of["end"]["mean"], "+.3f"),
            interval(of["end"]),
            number(of["best"], "+.3f"),
            str(of["rollbacks"]),
        ]
        for scenario, arms in result["arms"].items()
        for arm, of in arms.items()
    ]
    differences = [
        [f"guarded less {name}", number(estimate["mean"], "+.3f"), interval(estimate), str(estimate["count"])]
        for name, estimate in result["differences"].items()
    ]
    return [
        Table("Gold at the end, on held-out prompts", ("scenario", "arm", "mean", "95% interval", "best", "rollbacks"),
              ends, 2),
        Table("Paired differences at the end", ("", "mean", "95% interval", "pairs"), differences),
        spent_table(result["costs"]),
    ]  # fmt: skip


def recommend(result: Result) -> str:
    count = result["reaches_best"]["count"]
    if not count:
        return "No pair of a bare and a guarded run has ended, so nothing can be said yet."
    words = [
        f"The guarded run ends at least as good as the bare run ever was in {result['reaches_best']['mean']:.0%} of "
        f"{count} pairs, and within a tenth of the rise of its own peak in {result['kept_peak']['mean']:.0%}."
    ]
    for name, estimate in result["differences"].items():
        where = {1: "above", -1: "below", 0: "not clearly apart from"}[side(estimate)]
        words.append(f"It ends {where} {name}: {estimate['mean']:+.3f} {interval(estimate)}.")
    return " ".join(words)


def figure(result: Result) -> list[ChartSpec]:
    """A chart per scenario: what becomes of gold with and without the guard."""
    charts = []
    for scenario, arms in result["arms"].items():
        shown = [(name, arms[name]["curve"]) for name in SHOWN if name in arms and arms[name]["curve"]["steps"]]
        charts.append(
            ChartSpec(
                title=f"{scenario}: {finding(arms)}",
                subtitle="Gold on held-out prompts, mean over seeds.",
                unit="gold score",
                series=tuple(Series(name, curve["steps"], curve["gold"]) for name, curve in shown),
            )
        )
    return charts


def finding(arms: Result) -> str:
    """The chart's title says what it shows."""
    ends = {name: arms[name]["end"]["mean"] for name in ("bare", "guarded") if arms.get(name, {}).get("end")}
    if len(ends) < 2:
        return "gold by step"
    return f"{ends['guarded']:+.2f} (bare {ends['bare']:+.2f})"


EXPERIMENT = Experiment(
    name="efficacy",
    question="Does the guarded run end better than what is usual, and than the best that stands still?",
    scenarios=(*FLAW_SCENARIOS, PLAIN_ASIDE, BARE_NO_KL),
    arms=(BARE_ARM, GUARDED_ARM, AGAIN_ARM, TUNED_ARM),
    analyse=analyse,
    tables=tables,
    recommend=recommend,
    figure=figure,
)
