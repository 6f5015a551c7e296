"""One arm against the others on the same seeds: differences of gold at the end, and what each arm spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean

from holdfast.lab.experiment import Result, Results, Table, costs, mean_heldout, number
from holdfast.lab.trial import Trial
from holdfast.statistics import bootstrap


def difference(pairs: Sequence[Sequence[Trial]]) -> Result | None:
    """How much more gold the first of each pair ends with; None where no pair has ended."""
    return asdict(bootstrap([one.delivered - other.delivered for one, other in pairs])) if pairs else None


def over_scenarios(results: Results, arm: str, other: str) -> list[tuple[Trial, ...]]:
    """The pairs of two arms in all scenarios."""
    return [pair for scenario in results.scenarios for pair in results.paired(scenario, arm, other)]


def differences(results: Results, arm: str) -> dict[str, Result]:
    """One arm less each of the others, over all scenarios; without those of which no pair has ended."""
    against = {other: difference(over_scenarios(results, arm, other)) for other in results.arms if other != arm}
    return {other: estimate for other, estimate in against.items() if estimate is not None}


def arm_of(trials: Sequence[Trial]) -> Result:
    """An arm in one scenario: gold at the end, the best it had, rollbacks, and its curve."""
    if not trials:
        return {"end": None, "best": None, "rollbacks": 0, "curve": mean_heldout([])}
    return {
        "end": asdict(bootstrap([t.delivered for t in trials])),
        "best": fmean(t.peak for t in trials),
        "rollbacks": sum(len(t.rollbacks) for t in trials),
        "curve": mean_heldout(trials),
    }


def spent_by_arm(results: Results) -> dict[str, Result]:
    """What each arm spends in a trial."""
    return {arm: costs([t for cell, t in results.each() if cell.arm == arm]) for arm in results.arms}


def spent_table(spent: Mapping[str, Result]) -> Table:
    rows = [
        [arm, number(c["labels"]), number(c["audit_labels"]), number(c["tokens"]), number(c["seconds"]),
         str(c["trials"])]
        for arm, c in spent.items()
    ]  # fmt: skip
    columns = ("arm", "labels", "of them audit", "tokens", "seconds (median)", "trials")
    return Table("What each arm spent, a trial", columns, rows)
