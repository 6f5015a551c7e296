"""Who moved, the policy or the judge? Played runs in which the judge becomes another one, in which the policy falls
behind, and in which nothing happens: what is found, within how many rounds, and whether it is put down to the right
one.

Answers are tossed, no model is run. A run has 12 rounds with 72 pairs against the last good policy, as where it is
suspicious; the judge agrees with people in 90% of pairs. From round 5 on it agrees in 75, 60 or 40%; or people prefer
the policy in 35% of pairs, before in 60%. The first alarm decides: that of the audit names the policy, that of the
anchors the judge.

python -m benchmarks judge_drift  writes benchmarks/results/judge_drift.json
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from benchmarks.record import keep, parser_of
from holdfast.guard.beside import JudgeBeside
from holdfast.guard.claims import Granted
from holdfast.guard.drift import JudgeDrift, KnownPair
from holdfast.guard.judged import JudgedPair, JudgedRound
from holdfast.guard.sequential import SequentialTest
from holdfast.statistics import share_of

FALSE_ALARM, ROUNDS, PAIRS, CHANGE = 0.05, 12, 72, 5
CHANGES, QUIET = 60, 200
USUAL, OTHERS = 0.9, (0.75, 0.6, 0.4)
LIKED, FALLEN = 0.6, 0.35


@dataclass(frozen=True)
class Alarm:
    """Whom the first alarm of a run names, and in which round."""

    whose: Literal["policy", "judge"]
    round: int


def main(words: Sequence[str]) -> None:
    parser_of("judge_drift", __doc__).parse_args(words)
    judges = {other: [play(1000 + n, judge=other) for n in range(CHANGES)] for other in OTHERS}
    rows = [row_of(f"the judge agrees in {other:.0%}", "judge", found) for other, found in judges.items()]
    policies = [play(2000 + n, likes=FALLEN) for n in range(CHANGES)]
    rows.append(row_of(f"people prefer the policy in {FALLEN:.0%}", "policy", policies))
    quiet = [play(3000 + n) for n in range(QUIET)]
    alarms = {whose: sum(one is not None and one.whose == whose for one in quiet) for whose in ("judge", "policy")}
    for row in rows:
        print(f"{row['change']}: {row['found']} of {row['runs']} found, {row['right']} rightly; rounds {row['rounds']}")
    print(f"nothing happens: {alarms} alarms in {QUIET} runs")
    high = {whose: share_of(count, QUIET).high for whose, count in alarms.items()}
    keep("judge_drift", {"changes": rows, "quiet": {"runs": QUIET, "alarms": alarms, "high": high}})


def row_of(change: str, whose: str, runs: Sequence[Alarm | None]) -> dict[str, Any]:
    """What was found of one kind of change; alarms before it came are none of it."""
    found = [one for one in runs if one is not None and one.round >= CHANGE]
    right = [one for one in found if one.whose == whose]
    after = sorted(one.round - CHANGE + 1 for one in right)
    return {
        "change": change, "runs": len(runs), "found": len(found), "right": len(right),
        "before": sum(one is not None and one.round < CHANGE for one in runs),
        "rounds": {"median": median(after) if after else None, "most": max(after, default=None)},
    }  # fmt: skip


def play(seed: int, judge: float = USUAL, likes: float = LIKED) -> Alarm | None:
    """One played run with the judge and the policy that they are from the change on."""
    rng, beside = random.Random(seed), JudgeBeside(JudgeDrift(FALSE_ALARM, ROUNDS))
    test, people = SequentialTest(FALSE_ALARM, ROUNDS, judged=True), dict[str, float]()

    def says(side: float, agrees: float) -> float:
        return side if rng.random() < agrees else -side

    for round in range(1, ROUNDS + 1):
        agrees, rate = (judge, likes) if round >= CHANGE else (USUAL, LIKED)
        for _ in range(lacks := beside.drift.lacks):
            beside.drift.begin({key: says(people[key], agrees) for key in beside.drift.anchors})
        if not lacks and beside.meet({key: says(people[key], agrees) for key in beside.drift.anchors}).alarmed:
            return Alarm("judge", round)
        beside.begin_round()
        for n in range(beside.plan.pairs(PAIRS)):
            side = 0.5 if rng.random() < rate else -0.5
            asked, said = rng.random() < beside.plan.share, says(side, agrees)
            beside.said.setdefault("anchor", []).append(JudgedPair(said, side if asked else None))
            if asked:
                people[f"{round}-{n}"] = side
                beside.known.append(KnownPair(f"{round}-{n}", side))
        pairs = beside.said["anchor"]
        wins, losses = (sum(pair.people == side for pair in pairs) for side in (0.5, -0.5))
        test.record(round, Granted(wins, losses), JudgedRound.of(beside.plan, pairs))
        beside.end_round()
        if test.standing().alarmed:
            return Alarm("policy", round)
    return None
