"""The five pitfalls of online RLHF, each against the default: what one of them alone costs."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

from holdfast.config import Config
from holdfast.lab.experiment import Arm, Experiment, Result, Results, Table, mean_heldout
from holdfast.lab.scenarios import PLAIN, STANDS_STILL, planted
from holdfast.lab.statistics import bootstrap
from holdfast.report.charts import ChartSpec, Series

DEFAULT = "default"
UNGUARDED = "guard.mode=off"


def often(steps: int, usual: Config) -> tuple[str, ...]:
    """Rounds of so many steps: as many steps and fresh labels in all as usual, and a flaw comes at the same step."""
    was = usual.run
    rounds = was.rounds * was.steps_per_round // steps
    # Nothing is collected in the first round.
    labels = (was.rounds - 1) * usual.preferences.per_round // max(1, rounds - 1)
    onset = (usual.flaw.onset - 1) * was.steps_per_round // steps + 1
    return (
        f"run.rounds={rounds}", f"run.steps_per_round={steps}", f"preferences.per_round={labels}",
        f"flaw.onset={onset}",
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
    Arm("audit ignored", ("audit.pairs=0", "audit.suspicious_pairs=0", UNGUARDED), "nobody looks at fresh pairs"),
    Arm("no rollback", ("guard.mode=advise",), "the guard sees it, and nothing is done"),
)  # fmt: skip


def analyse(results: Results) -> Result:
    """Default less pitfall at the end, paired by seed: above 0 the pitfall costs something."""
    scenarios = {}
    for scenario in results.scenarios:
        arms = {}
        for arm in results.arms:
            pairs = results.paired(scenario, DEFAULT, arm)
            trials = results.of(scenario, arm)
            arms[arm] = {
                "end": asdict(bootstrap([t.delivered for t in trials])) if trials else None,
                "cost": asdict(bootstrap([d.delivered - t.delivered for d, t in pairs]))
                if pairs and arm != DEFAULT
                else None,
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
                    "" if cost is None else f"[{cost['low']:+.3f}, {cost['high']:+.3f}]",
                    "" if cost is None else verdict(cost),
                ]
            )
    columns = ("scenario", "arm", "gold at the end", "what it costs", "95% interval", "")
    return [Table("Each pitfall against the default", columns, rows, 2)]


def verdict(cost: Result) -> str:
    return "loses" if cost["low"] > 0 else "wins" if cost["high"] < 0 else "not clear"


def recommend(result: Result) -> str:
    words = []
    for scenario, arms in result["scenarios"].items():
        said: dict[str, list[str]] = {"loses": [], "wins": [], "not clear": []}
        for arm, of in arms.items():
            if of["cost"] is not None:
                said[verdict(of["cost"])].append(arm)
        parts = [
            f"{', '.join(names)} {'lose' if len(names) > 1 and how == 'loses' else how}"
            for how, names in (
                ("loses", said["loses"]), ("wins", said["wins"]), ("cannot be told apart", said["not clear"])
            )
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
                    title=f"{arm}: {verdict(of['cost'])} ({of['cost']['mean']:+.2f})",
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
