"""The five pitfalls of online RLHF, each against the default.

Who falls into one has no guard that would mend it, so the first four are without it, and *audit ignored* is nothing but
that. What a pitfall costs beyond the missing guard is its difference to *audit ignored*.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

from holdfast.charts.chart import ChartSpec, Series
from holdfast.config import Config
from holdfast.lab.experiment import Arm, Experiment, Result, Results, Table, interval, mean_heldout, side
from holdfast.lab.paired import difference
from holdfast.lab.scenarios import PLAIN, STANDS_STILL, planted
from holdfast.statistics import bootstrap

DEFAULT, IGNORED = "default", "audit ignored"
UNGUARDED = "guard.mode=off"


def often(steps: int, usual: Config) -> tuple[str, ...]:
    """Rounds of so many steps. Steps, fresh labels, the step of a flaw and the mean at the end are as usual."""
    was = usual.run
    rounds = was.rounds * was.steps_per_round // steps
    # Nothing is collected in the first round.
    labels = (was.rounds - 1) * usual.preferences.per_round // max(1, rounds - 1)
    onset = (usual.flaw.onset - 1) * was.steps_per_round // steps + 1
    return (
        f"run.rounds={rounds}", f"run.steps_per_round={steps}", f"preferences.per_round={labels}",
        f"flaw.onset={onset}", f"run.average={was.average * was.steps_per_round // steps}",
    )  # fmt: skip


PITFALLS = (
    Arm("never updated", (*STANDS_STILL, UNGUARDED), "the reward model of the start, for the whole run"),
    Arm(
        "updated too often",
        ("refresh.comparisons=0", "refresh.old_per_new=0.0", "gate.use=false", UNGUARDED),
        "a refresh every two steps on fresh labels and no older ones; as many steps and fresh labels, no audits",
        adapts=partial(often, 2),
    ),
    Arm("no KL", ("kl.controller=fixed", "kl.beta=0.0", UNGUARDED), "nothing holds the policy near the reference"),
    Arm(IGNORED, ("audit.pairs=0", "audit.more_pairs=0", UNGUARDED), "nobody looks at fresh pairs"),
    Arm("no rollback", ("guard.mode=advise",), "the guard sees it, and nothing is done"),
)  # fmt: skip


# Those that differ from the default in something beside the missing guard.
UNGUARDED_ARMS = tuple(arm.name for arm in PITFALLS if UNGUARDED in arm.overrides and arm.name != IGNORED)


def analyse(results: Results) -> Result:
    """Default less pitfall at the end, paired by seed: above 0 the pitfall costs something.

    `alone` is the same against a run without a guard, for those that differ from it in something else.
    """
    scenarios = {}
    for scenario in results.scenarios:
        arms = {}
        for arm in results.arms:
            pairs = results.paired(scenario, DEFAULT, arm)
            trials = results.of(scenario, arm)
            arms[arm] = {
                "end": asdict(bootstrap([t.delivered for t in trials])) if trials else None,
                "cost": difference(pairs) if arm != DEFAULT else None,
                "alone": difference(results.paired(scenario, IGNORED, arm)) if arm in UNGUARDED_ARMS else None,
                "curve": mean_heldout(trials),
            }
        scenarios[scenario] = arms
    return {"scenarios": scenarios}


def tables(result: Result) -> list[Table]:
    rows = []
    for scenario, arms in result["scenarios"].items():
        for arm, of in arms.items():
            end, cost = of["end"], of["cost"]
            rows.append(
                [
                    scenario,
                    arm,
                    "-" if end is None else f"{end['mean']:+.3f}",
                    "" if cost is None else f"{cost['mean']:+.3f}",
                    "" if cost is None else interval(cost),
                    "" if cost is None else verdict(cost),
                    "" if not (alone := of["alone"]) else f"{alone['mean']:+.3f} {interval(alone)}",
                ]
            )
    columns = ("scenario", "arm", "gold at the end", "what it costs", "95% interval", "", "beyond the missing guard")
    return [Table("Each pitfall against the default", columns, rows, 2)]


def verdict(cost: Result) -> str:
    return {1: "loses", -1: "wins", 0: "not clear"}[side(cost)]


def in_short(cost: Result) -> str:
    """What a pitfall costs, for the title of its chart."""
    amount = f"{abs(cost['mean']):.2f}"
    return {1: f"costs {amount}", -1: f"gains {amount}", 0: "not clear"}[side(cost)]


def recommend(result: Result) -> str:
    words = []
    for scenario, arms in result["scenarios"].items():
        by_verdict: dict[str, list[str]] = {"loses": [], "wins": [], "not clear": []}
        for arm, of in arms.items():
            if of["cost"] is not None:
                by_verdict[verdict(of["cost"])].append(arm)
        parts = [
            f"{', '.join(names)} {'lose' if len(names) > 1 and how == 'loses' else how}"
            for how, names in zip(("loses", "wins", "cannot be told apart"), by_verdict.values(), strict=True)
            if names
        ]  # fmt: skip
        if parts:
            words.append(f"With {scenario}, against the default: {'; '.join(parts)}.")
    return " ".join(words) or "No pair has ended, so nothing can be said yet."


def figure(result: Result) -> list[ChartSpec]:
    """A chart per scenario and pitfall: its gold and the default's."""
    charts = []
    for scenario, arms in result["scenarios"].items():
        for arm, of in arms.items():
            if of["cost"] is None:
                continue
            charts.append(
                ChartSpec(
                    title=f"{arm}: {in_short(of['cost'])}",
                    subtitle=f"Gold on held-out prompts, mean over seeds; {scenario}.",
                    unit="gold score",
                    series=tuple(
                        Series(name, arms[name]["curve"]["steps"], arms[name]["curve"]["gold"])
                        for name in (DEFAULT, arm)
                        if arms[name]["curve"]["steps"]
                    ),
                )
            )
    return charts


EXPERIMENT = Experiment(
    name="pitfalls",
    question="What does each of the five pitfalls cost?",
    scenarios=(PLAIN, planted("verbosity")),
    arms=(Arm(DEFAULT, (), "the defaults"), *PITFALLS),
    analyse=analyse,
    tables=tables,
    recommend=recommend,
    figure=figure,
    columns=5,
)
