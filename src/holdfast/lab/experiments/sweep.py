"""One knob at a time, over its range: where the best is, and how sure that is. `holdfast lab sweep KNOB`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean

from holdfast.charts.chart import ChartSpec, Series
from holdfast.config import Config
from holdfast.lab.cures import NO_CURE
from holdfast.lab.experiment import Arm, Experiment, Result, Results, Table, interval, number, side
from holdfast.lab.experiments.tuning import all_at_the_start
from holdfast.lab.fall import kept_its_peak
from holdfast.lab.scenarios import PLAIN, planted
from holdfast.lab.trial import Trial
from holdfast.statistics import bootstrap, chance_of_best
from holdfast.text import sentence

PREFIX = "sweep-"
# Below this share of the best value's rise a value keeps runs from improving.
HARDLY = 0.5
WATCHES = "guard.mode=advise"
CURED = (*NO_CURE.overrides, *all_at_the_start(Config()))


@dataclass(frozen=True)
class Knob:
    """A setting and the values to try, each with what it is called. What is `given` nobody chooses: it has a cost."""

    name: str
    words: str
    points: Mapping[str, tuple[str, ...]]
    given: bool = False


def values(
    name: str, words: str, setting: str, *tried: object, beside: tuple[str, ...] = (), given: bool = False
) -> Knob:
    return Knob(name, words, {str(value): (*beside, f"{setting}={value}") for value in tried}, given)


KNOBS: dict[str, Knob] = {
    knob.name: knob
    for knob in (
        # In these two the guard watches and does nothing: it would roll back what too little KL does, and where there
        # were no refreshes it would order some.
        values("beta", "KL coefficient, held fixed, with a guard that only watches", "kl.beta",
               0.0, 0.01, 0.03, 0.05, 0.1, 0.2, 0.5, beside=("kl.controller=fixed", WATCHES)),
        values("refresh", "rounds from refresh to refresh, with a guard that only watches; 0 is never",
               "refresh.every_rounds", 0, 1, 2, 4, beside=("refresh.on_miscalibration=false", WATCHES)),
        values("budget", "KL allowed with no labels", "kl.budget_start", 0.5, 1.0, 2.0, 4.0, 8.0),
        Knob(
            "schedule",
            "how beta is set",
            {
                "fixed 0.05": ("kl.controller=fixed", "kl.beta=0.05"),
                "adaptive, target 3": ("kl.controller=adaptive", "kl.target=3.0"),
                "adaptive, target 6": ("kl.controller=adaptive", "kl.target=6.0"),
                "budget": ("kl.controller=budget",),
            },
        ),
        values("members", "reward models in the ensemble", "reward.members", 1, 2, 3, 5),
        values("aggregation", "how members become one reward", "reward.aggregation",
               "mean", "median", "worst", "uncertainty", "agreement"),
        Knob(
            "audit",
            "fresh pairs a round against the reference, and as many against the last good policy; 0 asks nobody",
            {
                "0": ("audit.pairs=0", "audit.more_pairs=0"),
                **{str(pairs): (f"audit.pairs={pairs}",) for pairs in (8, 24, 48)},
            },
        ),
        values("average", "last policies whose mean a run ends with", "run.average", 1, 2, 4),
        # Cures of others, each with its strength.
        values("gradient-penalty", "penalty on the norm of the policy's gradient, without a guard",
               "ppo.gradient_penalty", 0.0, 0.01, 0.03, 0.1, 0.3, 1.0, beside=CURED),
        values("stop-at-kl", "KL at which the run ends, without a guard; 0 is never", "run.stop_at_kl",
               0.0, 3.0, 6.0, 9.0, 12.0, beside=CURED),
        values("advantage-offset", "constant added to every advantage, without a guard", "ppo.advantage_offset",
               0.0, 0.03, 0.1, 0.3, beside=CURED),
        values("noise", "share of labels that are wrong by chance", "world.label_noise", 0.0, 0.1, 0.2, 0.3,
               given=True),
    )
}  # fmt: skip


def analyse(knob: str, results: Results) -> Result:
    """Gold at the end by value of the knob, per scenario and over all; rows are seeds that ended with every value.

    A value can be bad in two ways: gold rises and ends fallen, or it hardly rises. `rise` is how far runs come above
    their start at their best, and `fell` how many end a tenth of that or more below it.
    """
    by_scenario, every = {}, []
    for scenario in results.scenarios:
        rows = results.paired(scenario, *results.arms)
        every += rows
        by_scenario[scenario] = {
            arm: of_arm([row[i] for row in rows]) if rows else None for i, arm in enumerate(results.arms)
        }
    columns = {arm: [row[i].delivered for row in every] for i, arm in enumerate(results.arms)}
    chance = chance_of_best(columns) if every else {}
    best = max(columns, key=lambda arm: fmean(columns[arm])) if every else ""
    # What nobody chooses is compared with its first value, whichever did best.
    against = results.arms[0] if every and KNOBS[knob].given else best
    below = {
        arm: asdict(bootstrap([b - v for b, v in zip(columns[against], columns[arm], strict=True)]))
        for arm in columns
        if every and arm != against
    }
    labels = {arm: fmean(row[i].labels.total for row in every) if every else None for i, arm in enumerate(results.arms)}
    return {
        "knob": knob,
        "words": KNOBS[knob].words,
        "scenarios": by_scenario,
        "chance_of_best": chance,
        "best": best,
        "against": against,
        "below": below,
        "labels": labels,
    }


def of_arm(trials: Sequence[Trial]) -> Result:
    """One value in one scenario: gold at the end with its interval, how far it had risen, and how often it fell."""
    fallen = [not kept_its_peak(t.heldout[0], t.peak, t.delivered) for t in trials]
    return {
        **asdict(bootstrap([t.delivered for t in trials])),
        "rise": fmean(t.peak - t.heldout[0] for t in trials),
        "fell": sum(fallen),
    }


def tables(result: Result) -> list[Table]:
    compared = f"below {result['against']}" if KNOBS[result["knob"]].given else "below the best"
    columns = [result["knob"], *result["scenarios"], compared, "best in", "rise", "ended fallen", "labels"]
    rows = []
    for arm in result["labels"]:
        below = result["below"].get(arm)
        effects = [of[arm] for of in result["scenarios"].values()]
        known = [of for of in effects if of is not None]
        rows.append(
            [
                arm,
                *("-" if of is None else f"{of['mean']:+.3f}" for of in effects),
                "" if below is None else f"{below['mean']:.3f} {interval(below, '.3f')}",
                number(result["chance_of_best"].get(arm), ".0%"),
                ", ".join(f"{of['rise']:.2f}" for of in known) or "-",
                ", ".join(f"{of['fell']}/{of['count']}" for of in known) or "-",
                number(result["labels"][arm]),
            ]
        )
    return [Table(f"{result['knob']}: {result['words']}", columns, rows)]


def recommend(result: Result) -> str:
    best = result["best"]
    if not best:
        return "No seed has ended with every value, so nothing can be said yet."
    runs = max((below["count"] for below in result["below"].values()), default=1)
    if runs < 2:
        if KNOBS[result["knob"]].given:
            return f"One run of each value says nothing sure about what {result['knob']} costs; take more seeds."
        return f"In the one run of each value {result['knob']} = {best} was best; how sure that is takes more seeds."
    words = [cost(result) if KNOBS[result["knob"]].given else advice(result, runs)]
    for scenario in result["scenarios"]:
        for reason, arms in (("rises and ends fallen", hacked(result, scenario)),
                             ("hardly rises", held_back(result, scenario))):  # fmt: skip
            if arms:
                words.append(f"With {scenario} gold {reason} at {', '.join(arms)}.")
    return " ".join(words)


def advice(result: Result, runs: int) -> str:
    """Which value to take, and how sure that is."""
    best = result["best"]
    close = [arm for arm, below in result["below"].items() if side(below) <= 0]
    sure = f"it is best in {result['chance_of_best'][best]:.0%} of resamples of {runs} runs a value"
    also = f"; {', '.join(close)} cannot be told apart from it" if close else "; every other value is clearly below it"
    return f"Take {result['knob']} = {best}: {sure}{also}."


def cost(result: Result) -> str:
    """What the other values cost against the first, where nobody can choose."""
    sentences = [
        f"{arm} costs {below['mean']:.2f} of gold {interval(below, '.2f')}"
        + ("" if side(below) > 0 else ", which is not clear")
        for arm, below in result["below"].items()
    ]
    return f"Against {result['knob']} = {result['against']}, " + "; ".join(sentences) + "."


def hacked(result: Result, scenario: str) -> list[str]:
    """The values at which gold rises and most runs lose some of that again."""
    results = result["scenarios"][scenario]
    return [
        arm for arm, up in rising(result, scenario).items() if up and results[arm]["fell"] > results[arm]["count"] / 2
    ]


def held_back(result: Result, scenario: str) -> list[str]:
    """The values at which gold hardly rises."""
    return [arm for arm, up in rising(result, scenario).items() if not up]


def rising(result: Result, scenario: str) -> dict[str, bool]:
    """Whether gold rises at a value at any time, by half as much at least as at the value where it rises most."""
    rises = {arm: of["rise"] for arm, of in result["scenarios"][scenario].items() if of is not None}
    return {arm: rise >= HARDLY * max(rises.values()) for arm, rise in rises.items()}


def figure(result: Result) -> list[ChartSpec]:
    """Gold against the knob, its values side by side in their order: 0.01 and 0.03 are as far apart as 0.2 and 0.5."""
    arms, scenarios = list(result["labels"]), result["scenarios"]
    return [
        ChartSpec(
            title=title(result),
            subtitle=f"{sentence(result['words'])} Gold at the end, mean over seeds with its 95% interval.",
            unit="gold score",
            x_label=result["knob"],
            x_names=arms,
            x_range=(-0.3, len(arms) - 0.7),
            series=tuple(
                # A little beside each other, so that no interval hides another.
                across(scenario, [place + 0.12 * (n - (len(scenarios) - 1) / 2) for place in range(len(arms))], of)
                for n, (scenario, of) in enumerate(scenarios.items())
            ),
            width=640,
        )
    ]


def title(result: Result) -> str:
    knob, best = KNOBS[result["knob"]], result["best"]
    return f"What {knob.name} costs" if knob.given else f"{knob.name}: best at {best or 'nothing yet'}"


def across(name: str, places: Sequence[float], by_arm: Mapping[str, Result | None]) -> Series:
    """One scenario's gold over the values of the knob; none where no seed has ended with all of them."""
    mean, low, high = ([None if of is None else of[end] for of in by_arm.values()] for end in ("mean", "low", "high"))
    return Series(name, places, mean, dots=True, low=low, high=high, bare=True)


def question(knob: Knob) -> str:
    asked = f"What does {knob.name} cost" if knob.given else f"Which value is best for {knob.name}"
    return f"{asked}: {knob.words}?"


EXPERIMENTS = tuple(
    Experiment(
        name=f"{PREFIX}{knob.name}",
        question=question(knob),
        scenarios=(PLAIN, planted("verbosity")),
        arms=tuple(Arm(name, overrides) for name, overrides in knob.points.items()),
        analyse=partial(analyse, knob.name),
        tables=tables,
        recommend=recommend,
        figure=figure,
        columns=1,
    )
    for knob in KNOBS.values()
)
