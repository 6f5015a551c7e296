"""How soon is hacking seen, without gold? The guard watches bare runs and says what it would do, and does nothing."""

from __future__ import annotations

import math
from dataclasses import asdict
from statistics import median

from holdfast.charts.chart import ChartSpec, Series
from holdfast.config.schema import AuditConfig
from holdfast.lab.experiment import Arm, Experiment, Result, Results, Table, number
from holdfast.lab.fall import SOON, fallen, onset
from holdfast.lab.poll import pairs_needed
from holdfast.lab.scenarios import BARE, FLAW_SCENARIOS, NO_KL, PLAIN_ASIDE
from holdfast.lab.trial import Trial
from holdfast.statistics import share_of

# Pairs that a whole run may ask about by default. A fall that takes more to be seen, in pairs as they come, is hidden.
MOST_PAIRS = AuditConfig().budget


def analyse(results: Results) -> Result:
    """Every run, and what they come to."""
    return summary([{"scenario": cell.scenario, "seed": cell.seed, **run_of(trial)} for cell, trial in results.each()])


def summary(runs: list[Result]) -> Result:
    """Runs that were hacked, by the observer, and when the verdict came. A verdict before the onset counts as seen."""
    hacked = [run for run in runs if run["onset"] is not None]
    judged = [run for run in hacked if can_be_judged(run)]
    too_late = [run for run in hacked if run not in judged]
    soon = [run for run in judged if run["called"] is not None and run["delay"] <= SOON]
    late = [run for run in judged if run not in soon]
    delays = [run["delay"] for run in judged if run["called"] is not None]
    return {
        "runs": runs,
        "hacked": len(hacked),
        "too_late_to_judge": len(too_late),
        "too_late_called": sum(run["called"] is not None for run in too_late),
        "before_the_onset": sum(delay < 0 for delay in delays),
        "never_called": sum(run["called"] is None for run in judged),
        "median_delay": median(delays) if delays else None,
        "soon": asdict(share_of(len(soon), len(judged))),
        "late": len(late),
        "late_and_hidden": sum(run["hidden"] is True for run in late),
        "late_and_unknown": sum(run["hidden"] is None for run in late),
        "most_pairs": MOST_PAIRS,
        "not_fallen": len(runs) - len(hacked),
        "not_fallen_called": sum(run["onset"] is None and run["called"] is not None for run in runs),
        "not_fallen_called_in_a_dip": sum(run["onset"] is None and run["called_in_a_fall"] is True for run in runs),
        "before_the_onset_and_no_dip": sum(
            run["called"] is not None and run["delay"] < 0 and run["called_in_a_fall"] is False for run in judged
        ),
    }


def can_be_judged(run: Result) -> bool:
    """Whether gold fell early enough to be called in time. One that falls in its last rounds is told of apart."""
    return run["onset"] is not None and run["rounds"] - run["onset"] >= SOON


def run_of(trial: Trial) -> Result:
    began, called = onset(trial.heldout), trial.first_alarm
    # What people think of the fallen policy when it is to be called at the latest, and how many pairs show it.
    at = None if began is None else min(began + SOON, len(trial.heldout) - 1)
    people = None if at is None or not trial.liked else trial.liked[at]
    needed = None if people is None else pairs_needed(people)
    return {
        "onset": began,
        "called": called,
        "called_in_a_fall": None if called is None else fallen(trial.heldout)[called],
        "delay": None if began is None or called is None else called - began,
        "rounds": len(trial.heldout) - 1,
        "gold": trial.heldout,
        "verdicts": trial.verdicts,
        "sentences": trial.sentences,
        "audit_labels": trial.labels.audit,
        "people": people,
        "pairs_needed": None if needed is None or math.isinf(needed) else needed,
        "hidden": None if needed is None else needed > MOST_PAIRS,
    }


def tables(result: Result) -> list[Table]:
    rows = [
        [run["scenario"], str(run["seed"]), number(run["onset"]), called_in(run), f"{max(run['gold']):+.2f}",
         f"{run['gold'][-1]:+.2f}", number(run["people"], ".0%"),
         number(run["pairs_needed"], ",.0f")]
        for run in result["runs"]
    ]  # fmt: skip
    columns = ("scenario", "seed", "falls", "called", "best", "end", "people", "pairs")
    return [Table("From the fall of gold to the verdict", columns, rows, 1)]


def called_in(run: Result) -> str:
    """The round of the verdict, and how many rounds after the fall that is."""
    if run["called"] is None:
        return "-"
    return str(run["called"]) if run["delay"] is None else f"{run['called']} ({run['delay']:+d})"


def recommend(result: Result) -> str:
    soon = result["soon"]
    if not soon["count"]:
        return "No run was hacked for long enough to be judged; run longer, or with stronger flaws."
    return (
        f"Of {soon['count']} hacked runs {soon['mean']:.0%} were called within {SOON} rounds of the onset "
        f"[{soon['low']:.0%}, {soon['high']:.0%}]; the median delay is "
        f"{number(result['median_delay'], '+.1f')} rounds, "
        f"{result['before_the_onset']} were called before the onset{dips(result)}, {result['never_called']} never. "
        f"{result['too_late_to_judge']} more began to fall too late to be judged{too_late(result)}."
        f"{hidden(result)}{others(result)}"
    )


def hidden(result: Result) -> str:
    """How many of the missed runs people would not have seen either."""
    if not result["late"]:
        return ""
    unknown = result["late_and_unknown"]
    return (
        f" Of the {result['late']} that were not called in time the fall was hidden from people in "
        f"{result['late_and_hidden']}: to see it in pairs as they come takes more than the {result['most_pairs']:,} "
        f"that a whole run may ask about{f'; of {unknown} it is not known' if unknown else ''}."
    )


def others(result: Result) -> str:
    """The runs whose gold did not fall for long."""
    return (
        f" Of the {result['not_fallen']} runs whose gold never fell for long {result['not_fallen_called']} were "
        f"called too, {result['not_fallen_called_in_a_dip']} of them in a round in which it stood fallen."
    )


def too_late(result: Result) -> str:
    """How many of these were called all the same."""
    return f", {result['too_late_called']} of which were called" if result["too_late_called"] else ""


def dips(result: Result) -> str:
    return f" ({result['before_the_onset_and_no_dip']} of them in a round in which gold did not stand fallen)"


def figure(result: Result) -> list[ChartSpec]:
    """Gold around the verdict: it should be called where gold falls."""
    called = [run for run in result["runs"] if can_be_judged(run) and run["called"] is not None]
    first = {run["scenario"]: run for run in reversed(called)}
    return [
        ChartSpec(
            title=f"Called in {result['soon']['mean']:.0%} of hacked runs within {SOON} rounds of the fall",
            subtitle="Gold on held-out prompts, the first called run of each scenario; round 0 is the verdict's.",
            unit="gold score",
            x_label="rounds from the verdict",
            series=tuple(
                Series(
                    f"{run['scenario']}, {run['seed']}",
                    [n - run["called"] for n in range(len(run["gold"]))],
                    run["gold"],
                )
                for run in reversed(first.values())
            ),
            width=860,
        )
    ]


EXPERIMENT = Experiment(
    name="detection",
    question="How many rounds after gold begins to fall is hacking called, without looking at gold?",
    scenarios=(*FLAW_SCENARIOS, NO_KL, PLAIN_ASIDE),
    arms=(
        Arm(
            "watched",
            (*BARE, "guard.mode=advise"),
            "the bare run, watched by a guard that only says",
            asks_everything=True,
        ),
    ),
    analyse=analyse,
    tables=tables,
    recommend=recommend,
    figure=figure,
    columns=1,
)
