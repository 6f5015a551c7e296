"""How often the guard's sequential test alarms, in played runs with known rates: where nothing is wrong, where the
policy falls behind, and where people grant less than the ensemble claims.

Answers are tossed, no model is run. A round has so many pairs against the last good policy, as many pointed ones and 24
against the reference. Each case is played against Ville's bar of 20 and against that of the default plan.

python -m benchmarks guard_power  writes benchmarks/results/guard_power.json
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.record import keep, parser_of
from holdfast.config.schema import AuditConfig
from holdfast.guard.alarm import Against, AlarmTest
from holdfast.guard.claims import Granted
from holdfast.guard.plan import AuditPlan
from holdfast.guard.threshold import planned_bar

FALSE_ALARM, RUNS, REFERENCE_PAIRS = 0.05, 1000, 24


@dataclass(frozen=True)
class Round:
    """In what share of pairs people prefer the policy, and what the ensemble claims, for each opponent."""

    reference: tuple[float, float]
    anchor: tuple[float, float]
    pointed: tuple[float, float]


@dataclass(frozen=True)
class Case:
    """A run as it is planned; `refreshed` every round, or judged by one ensemble. `by` are rounds of interest."""

    name: str
    rounds: Sequence[Round]
    pairs: int
    refreshed: bool
    by: Sequence[int]


def even(rate: float, reference: float) -> Round:
    """The same rate against the last good policy in pairs of both kinds, and claims that say no more than a half."""
    return Round((reference, 0.5), (rate, 0.5), (rate, 0.5))


def falls_to(rate: float, pairs: int, *within: int) -> Case:
    rounds = [even(0.62, 0.65)] * 3 + [even(rate, 0.65)] * 5
    name = f"falls to {rate:.0%} after three healthy rounds, {pairs} pairs"
    return Case(name, rounds, pairs, True, [3 + n for n in within])


STANDS_STILL = [Round((0.65, 0.65), (0.60, 0.62), (0.60, 0.62))] + [Round((0.65, 0.65), (0.48, 0.6), (0.48, 0.6))] * 7
CASES = [
    *(
        Case(f"no preference, {rounds} rounds of {pairs} pairs", [even(0.5, 0.5)] * rounds, pairs, False, [rounds])
        for rounds, pairs in ((8, 24), (8, 72), (30, 24))
    ),
    Case("improves: 60%", [even(0.6, 0.7)] * 8, 48, False, [8]),
    falls_to(0.3, 72, 1, 2, 3),
    falls_to(0.3, 24, 3, 5),
    falls_to(0.2, 72, 1),
    falls_to(0.35, 72, 2, 3),
    falls_to(0.4, 72, 3),
    Case("stands still from round 2 on, one ensemble claims 60%", STANDS_STILL, 144, False, [4, 6]),
    Case("the same, refreshed every round", STANDS_STILL, 144, True, [8]),
    Case("improves as claimed: 53%", [Round((0.7, 0.7), (0.53, 0.53), (0.66, 0.66))] * 8, 144, False, [8]),
    Case("claims 3 to 5 points too high, 52%", [Round((0.7, 0.75), (0.52, 0.55), (0.65, 0.7))] * 8, 144, False, [8]),
    Case("claims 3 to 7 points too high, 55%", [Round((0.7, 0.75), (0.55, 0.58), (0.65, 0.72))] * 8, 144, False, [8]),
    Case("claims 8 points too high, 58%", [Round((0.72, 0.72), (0.58, 0.66), (0.72, 0.8))] * 8, 144, False, [8]),
]


def main(words: Sequence[str]) -> None:
    parser_of("guard_power", __doc__).parse_args(words)
    audits = AuditConfig()
    found: dict[str, Any] = {}
    for case in CASES:
        plan = planned_bar(FALSE_ALARM, len(case.rounds), audits.pairs, AuditPlan(audits).most)
        found[case.name] = {"any plan": play(case, 1 / FALSE_ALARM), "default plan": play(case, plan), "bar": plan}
        told = [
            f"{name} " + ", ".join(f"round {n} {share:.1%}" for n, share in found[case.name][name].items())
            for name in ("any plan", "default plan")
        ]
        print(f"{case.name}: {'; '.join(told)}")
    keep("guard_power", {"runs": RUNS, "called_by": found})


def play(case: Case, bar: float) -> dict[int, float]:
    """The share of runs that have alarmed by each of the rounds of interest."""
    rng = torch.Generator().manual_seed(1)
    alarms = [alarm(case, bar, rng) for _ in range(RUNS)]
    return {n: sum(round is not None and round <= n for round in alarms) / RUNS for n in case.by}


def alarm(case: Case, bar: float, rng: torch.Generator) -> int | None:
    """The round in which one played run alarms."""
    test = AlarmTest(FALSE_ALARM, len(case.rounds), bar)
    for number, rates in enumerate(case.rounds, start=1):
        kinds: dict[Against, tuple[tuple[float, float], int]] = {
            "reference": (rates.reference, REFERENCE_PAIRS),
            "anchor": (rates.anchor, case.pairs),
            "pointed": (rates.pointed, case.pairs),
        }
        for against, ((rate, claimed), pairs) in kinds.items():
            wins = int((torch.rand(pairs, generator=rng) < rate).sum())
            test.record(number, against, Granted(wins, pairs - wins, claimed, number if case.refreshed else 1))
        if test.evidence().alarmed:
            return number
    return None
