"""A judge that is another one is told from a policy that is another one."""

from __future__ import annotations

import json
import math
import random

import pytest

from holdfast.guard.beside import JudgeBeside
from holdfast.guard.drift import ANCHORS, JudgeDrift, KnownPair
from holdfast.guard.judged import ALONE, JudgedPair
from holdfast.guard.sequential import log_evidence


def known(count: int) -> list[KnownPair]:
    return [KnownPair(str(n), 0.5) for n in range(count)]


def test_by_hand() -> None:
    """The judge was right about every anchor. It is wrong about six of them now, and says nothing of one."""
    drift = JudgeDrift(0.05, 4)
    drift.know([KnownPair("tie", 0.0), *known(ANCHORS + 5)])
    assert drift.anchors == [str(n) for n in range(ANCHORS)], "a tie is nobody's mistake"
    for left in range(4, 0, -1):
        assert drift.lacks == (4 if left == 4 else 0)
        drift.begin(dict.fromkeys(drift.anchors, 0.5))
    found = drift.see({str(n): -0.5 if n < 6 else 0.5 for n in range(ANCHORS - 1)})
    assert (found.pairs, found.gained, found.lost) == (ANCHORS - 1, 0, 6)
    # 0.9 / 4 of each test is on the stretch from round 1, the rest has not begun.
    stretches = [math.exp(log_evidence(*counts)) for counts in ((0.0, 6.0), (6.0, 0.0))]
    assert found.evidence == pytest.approx(sum(0.225 * each + 0.775 for each in stretches) / 2)
    again = JudgeDrift(0.05, 4)
    again.restore(json.loads(json.dumps(drift.state())))
    same = dict.fromkeys(drift.anchors, -0.5)
    assert again.see(same) == drift.see(same)


def test_each_first_answer_is_used_once_and_more_are_asked_for_when_they_are_used_up() -> None:
    drift = JudgeDrift(0.05, 2)
    drift.know(known(ANCHORS - 1))
    assert (drift.anchors, drift.lacks) == ([], 0), "too few yet"
    drift.know(known(ANCHORS)[-1:])
    same = dict.fromkeys(drift.anchors, 0.5)
    for _ in range(drift.lacks):
        drift.begin(same)
    assert [drift.see(same).pairs for _ in range(2)] == [ANCHORS, ANCHORS]
    assert drift.lacks == 2


def test_a_judge_that_has_drifted_has_no_say_until_it_is_known_again() -> None:
    beside = JudgeBeside(JudgeDrift(0.05, 8))
    beside.begin_round()
    beside.said = {"anchor": [JudgedPair(0.5, 0.5)] * 80}
    beside.known = known(80)
    beside.end_round()
    same = dict.fromkeys(beside.drift.anchors, 0.5)
    for _ in range(beside.drift.lacks):
        beside.drift.begin(same)
    assert not beside.meet(same).alarmed
    beside.begin_round()
    assert beside.plan.share < 1.0
    assert beside.meet(dict.fromkeys(same, -0.5)).alarmed
    beside.begin_round()
    assert beside.plan == ALONE
    assert beside.drift.anchors == []


@pytest.mark.parametrize("right", [0.95, 0.7])
def test_a_judge_that_is_the_same_is_seldom_said_to_have_drifted(right: float) -> None:
    rng = random.Random(int(right * 100))
    # 5% of 100 runs are 5, with a standard error of 2.2.
    assert sum(any(played(rng, [right] * 8)) for _ in range(100)) <= 10


def test_one_that_is_another_is_found() -> None:
    rng = random.Random(3)
    found = [played(rng, [0.9] * 3 + [0.6] * 5) for _ in range(40)]
    assert sum(any(run[:3]) for run in found) <= 4
    assert sum(any(run[3:6]) for run in found) >= 36


def played(rng: random.Random, rights: list[float]) -> list[bool]:
    """Whether the judge is said to have drifted, by round; it agrees with people so often in each."""
    drift, alarms = JudgeDrift(0.05, len(rights)), []
    drift.know(known(ANCHORS))

    def says(right: float) -> dict[str, float]:
        return {key: 0.5 if rng.random() < right else -0.5 for key in drift.anchors}

    for _ in range(drift.lacks):
        drift.begin(says(rights[0]))
    for right in rights:
        alarms.append(drift.see(says(right)).alarmed)
    return alarms
