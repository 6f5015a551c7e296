"""Whether a judge is still the judge that it was.

Another model behind the endpoint, another prompt, another temperature: the judge has drifted, which is no news about
the policy. So a fixed set of pairs that people have answered once, the anchors, is given to the judge again in every
round. At first it answers each of them as many times as rounds will come; every round holds one of those first answers
against a new one. While the judge is what it was the two can be exchanged, so where one of them is nearer to what
people said it is as often the first as the second: two sequential tests (`guard/sequential.py`), for being worse now
and for being better, of which the mean has their guarantee. A judge that has drifted has no say until it is
known again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.guard.sequential import SequentialTest

# How many pairs the judge is given again in every round.
ANCHORS = 36


@dataclass(frozen=True)
class KnownPair:
    """A comparison and what people said of its first side, 1/2 or -1/2, and the judge's first answers, one a round."""

    id: str
    people: float
    first: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Drift:
    """A round's answers about the anchors: how many came nearer to people's, and how many went further away."""

    pairs: int
    gained: int
    lost: int
    evidence: float
    bar: float

    @property
    def alarmed(self) -> bool:
        return self.evidence >= self.bar


class JudgeDrift:
    """The anchors with the judge's first answers, and the evidence that it is another judge now."""

    def __init__(self, false_alarm: float, rounds: int) -> None:
        self._false_alarm, self._rounds = false_alarm, rounds
        self.forget()

    def forget(self) -> None:
        """It is another judge: what it said before says nothing of it."""
        self._anchors: list[KnownPair] = []
        self._worse, self._better = (SequentialTest(self._false_alarm, self._rounds) for _ in range(2))

    def know(self, pairs: Sequence[KnownPair]) -> None:
        """Pairs that people have answered become anchors while there are too few; a tie is nobody's mistake."""
        self._anchors += [pair for pair in pairs if pair.people][: ANCHORS - len(self._anchors)]

    @property
    def anchors(self) -> list[str]:
        """The pairs to give to the judge, once there are enough of them."""
        return [pair.id for pair in self._anchors] if len(self._anchors) == ANCHORS else []

    @property
    def lacks(self) -> int:
        """How many first answers the judge still has to give about each anchor before it can be held against them."""
        return self._rounds if self.anchors and not any(pair.first for pair in self._anchors) else 0

    def begin(self, answers: Mapping[str, float]) -> None:
        """A first answer about each anchor; those that the judge gave none to have one less."""
        for pair in self._anchors:
            if pair.id in answers:
                pair.first.append(answers[pair.id])

    def see(self, again: Mapping[str, float]) -> Drift:
        """What the judge says of the anchors now, each beside one of its first answers."""
        # How far each answer lies from people's: the test is of which of the two lies nearer.
        found = [(pair, pair.first.pop()) for pair in self._anchors if pair.id in again and pair.first]
        nearer = [abs(first - pair.people) - abs(again[pair.id] - pair.people) for pair, first in found]
        gained, lost = sum(step > 0 for step in nearer), sum(step < 0 for step in nearer)
        self._worse.add(gained, lost)
        self._better.add(lost, gained)
        worse, better = self._worse.standing(), self._better.standing()
        return Drift(len(found), gained, lost, (worse.evidence + better.evidence) / 2.0, worse.bar)

    def state(self) -> dict[str, Any]:
        anchors = [[pair.id, pair.people, list(pair.first)] for pair in self._anchors]
        return {"anchors": anchors, "worse": self._worse.state(), "better": self._better.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._anchors = [KnownPair(key, people, list(first)) for key, people, first in state["anchors"]]
        self._worse.restore(state["worse"])
        self._better.restore(state["better"])
