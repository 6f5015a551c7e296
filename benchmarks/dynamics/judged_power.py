"""People with a judge: how many labels of people the sequential test takes, beside people alone, for judges that agree
with people in 95, 85, 70 and 50% of pairs and for a hostile one (30%); and how often it alarms where nothing is wrong.

Answers are tossed, no model is run. A policy is healthy for some rounds (people prefer it in 60% of pairs) and then
falls to a rate; labels are counted from there to the alarm, against the test of people alone on equally many runs.
False alarms are of whole runs in which people have no preference. Both tests have the same bar, 1 / 5%.

python -m benchmarks judged_power  writes benchmarks/results/judged_power.json
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from benchmarks.record import keep, parser_of
from holdfast.guard.claims import Granted
from holdfast.guard.judged import ALONE, Agreement, JudgedPair, JudgedRound
from holdfast.guard.sequential import SequentialTest
from holdfast.statistics import mean_interval, share_of

FALSE_ALARM, ROUNDS, PAIRS, HEALTHY, RUNS = 0.05, 40, 24, 3, 1000
AGREEMENTS = (0.95, 0.85, 0.7, 0.5, 0.3)
FALLS = (0.4, 0.35, 0.25)


@dataclass(frozen=True)
class Played:
    """One run: labels of people from the fall to the alarm, rounds until then, and whether there was one."""

    labels: int
    rounds: int
    alarmed: bool


def main(words: Sequence[str]) -> None:
    parser_of("judged_power", __doc__).parse_args(words)
    rows, quiet = [], []
    for rate in FALLS:
        alone = [play(rate, None, 1000 + n) for n in range(RUNS)]
        for agrees in AGREEMENTS:
            judged = [play(rate, agrees, 1000 + n) for n in range(RUNS)]
            rows.append(row_of(rate, agrees, alone, judged))
            labels, base, ratio, low, high = (
                float(rows[-1][name]) for name in ("labels", "alone", "ratio", "low", "high")
            )
            told = f"{labels:.0f} labels of people, alone {base:.0f}: {ratio:.2f} times [{low:.2f}, {high:.2f}]"
            print(f"falls to {rate:.0%}, judge agrees {agrees:.0%}: {told}")
    for judge in (None, *AGREEMENTS):
        found = [play(0.5, judge, 5000 + n, healthy=0, rounds=8).alarmed for n in range(RUNS)]
        share = share_of(sum(found), RUNS)
        quiet.append({"agrees": judge, "alarms": sum(found), "runs": RUNS, "low": share.low, "high": share.high})
        print(f"no preference, judge {judge}: {sum(found)} alarms in {RUNS} runs")
    most = max(row["ratio"] for row in rows)
    keep("judged_power", {"runs": RUNS, "labels": rows, "no_preference": quiet, "most": most, "holds": most <= 1.05})


def row_of(rate: float, agrees: float, alone: Sequence[Played], judged: Sequence[Played]) -> dict[str, Any]:
    """Labels with a judge over labels alone; runs of one seed have the same answers of people where both ask."""
    base = fmean(one.labels for one in alone)
    ratio = mean_interval([one.labels / base for one in judged])
    spread = mean_interval([one.labels / base for one in alone])
    wide = ((ratio.high - ratio.low) ** 2 + (ratio.value * (spread.high - spread.low)) ** 2) ** 0.5 / 2
    return {
        "falls_to": rate, "agrees": agrees, "alone": base, "labels": ratio.value * base, "ratio": ratio.value,
        "low": ratio.value - wide, "high": ratio.value + wide,
        "rounds_alone": fmean(one.rounds for one in alone), "rounds": fmean(one.rounds for one in judged),
        "alarmed_alone": fmean(one.alarmed for one in alone), "alarmed": fmean(one.alarmed for one in judged),
    }  # fmt: skip


def play(rate: float, agrees: float | None, seed: int, healthy: int = HEALTHY, rounds: int = ROUNDS) -> Played:
    """One played run, with a judge that agrees with people so often, or with people alone."""
    rng, agreement = random.Random(seed), Agreement()
    test = SequentialTest(FALSE_ALARM, rounds, judged=agrees is not None)
    labels = 0
    for round in range(1, rounds + 1):
        plan = ALONE if agrees is None else agreement.plan()
        likes = rate if round > healthy else 0.6
        pairs = [answered(rng, likes, agrees or 0.5, plan.share) for _ in range(plan.pairs(PAIRS))]
        wins, losses = (sum(pair.people == side for pair in pairs) for side in (0.5, -0.5))
        labels += (wins + losses) if round > healthy else 0
        test.record(round, Granted(wins, losses), JudgedRound.of(plan, pairs))
        agreement.add(pairs)
        if test.standing().alarmed:
            return Played(labels, round - healthy, True)
    return Played(labels, rounds - healthy, False)


def answered(rng: random.Random, likes: float, agrees: float, share: float) -> JudgedPair:
    people = 0.5 if rng.random() < likes else -0.5
    judge = people if rng.random() < agrees else -people
    return JudgedPair(judge, people if rng.random() < share else None)
