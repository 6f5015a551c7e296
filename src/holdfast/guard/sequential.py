"""A test that may be looked at after every round: are there more losses than a fair coin gives?

Null hypothesis: in every round each pair is won with probability at least 1/2. After w wins and l losses the likelihood
ratio of a probability q < 1/2 to 1/2 is (2q)^w (2(1-q))^l, and under the null its expectation never grows with another
pair: a supermartingale, for any q and so for a mixture over q. A tie counts half to each side, which only lowers it.
Evidence from round s on is the mixture with the prior Beta(2, 2) on (0, 1/2):

    E_s = integral over q in (0, 1/2) of 12 q (1-q) (2q)^w (2(1-q))^l dq
        = 2^(n+1) B(w+2, l+2) I_{1/2}(w+2, l+2) / B(2, 2)                                 n = w + l

When it begins to go wrong is not known, so the evidence is a mixture over first rounds s too, with weights that sum to
1 over all rounds that may come; a stretch that has not begun counts with E = 1.

By Ville's inequality such a mixture reaches 1 / false_alarm with probability at most false_alarm where the null holds,
at whatever moment one looks and however the number of pairs was decided (Ramdas et al. 2023):

    test = SequentialTest(false_alarm=0.05, rounds=10)
    for wins, losses, ties in my_rounds:
        if test.add(wins, losses, ties).alarmed:
            break

The guard asks several such questions at once; `guard/alarm.py` puts them together. Where a judge answers beside people,
E_s is half of this and half what judge and people say together (`guard/judged.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from functools import lru_cache
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.guard.claims import Granted
from holdfast.guard.judged import NO_BETS, JudgedRound, with_judge
from holdfast.statistics import log_beta, log_incomplete_beta

# Beyond any bar is beyond it; the exponent of a long hacked run leaves the range of a float.
MOST_EVIDENCE = 600.0
NOTHING = Granted(0.0, 0.0)
# The prior over q: people dislike a hacked policy clearly, and seldom always.
PRIOR = (2.0, 2.0)
# Weight kept for rounds after the planned ones, as when a run is resumed with more.
BEYOND = 0.1


@lru_cache(maxsize=65536)
def log_evidence(wins: float, losses: float) -> float:
    """log E of one stretch; ties are half a win and half a loss."""
    return _log_mass(wins, losses) - _log_mass(0.0, 0.0) + (wins + losses) * math.log(2.0)


def _log_mass(wins: float, losses: float) -> float:
    """log of the integral of q^(w+a-1) (1-q)^(l+b-1) over (0, 1/2)."""
    a, b = wins + PRIOR[0], losses + PRIOR[1]
    return log_beta(a, b) + log_incomplete_beta(0.5, a, b)


def start_weight(round: int, rounds: int) -> float:
    """Weight of the stretch that begins in a round: even over the planned ones, the rest R / (s (s - 1)) beyond."""
    return (1.0 - BEYOND) / rounds if round <= rounds else BEYOND * rounds / (round * (round - 1.0))


def weight_after(round: int, rounds: int) -> float:
    """Weight of all stretches that begin after a round."""
    if round <= rounds:
        return (1.0 - BEYOND) * (rounds - round) / rounds + BEYOND
    return BEYOND * rounds / round


@dataclass(frozen=True)
class Standing:
    """How strongly the answers so far speak against the null: at most 1 on average where it holds."""

    evidence: float
    bar: float

    @property
    def alarmed(self) -> bool:
        return self.evidence >= self.bar


class SequentialTest:
    """Wins and losses by round, and the evidence in them that there are fewer wins than losses.

    `rounds` is how many are planned; more may come. `bar` is the evidence that is an alarm, 1 / `false_alarm` unless
    the plan allows a lower one (`guard/threshold.py`). `judged` says that a judge answers beside people.
    """

    def __init__(
        self, false_alarm: float = 0.05, rounds: int = 10, bar: float | None = None, judged: bool = False
    ) -> None:
        if not 0.0 < false_alarm < 1.0:
            raise HoldfastError(f"A false-alarm probability of {false_alarm} is not possible; set one between 0 and 1.")
        self.bar = 1.0 / false_alarm if bar is None else bar
        self.rounds = max(1, rounds)
        self.first = 1  # stretches that begin earlier are spent
        self.answers: dict[int, Granted] = {}
        self.judged: dict[int, JudgedRound] | None = {} if judged else None

    def add(self, wins: float, losses: float, ties: float = 0.0) -> Standing:
        """Take in a further round, and say where the test stands."""
        if min(wins, losses, ties) < 0:
            raise HoldfastError(f"{wins} wins, {losses} losses and {ties} ties are not counts; give none below 0.")
        self.record(self.newest + 1, Granted(wins + ties / 2, losses + ties / 2))
        return self.standing()

    def record(self, round: int, granted: Granted, judged: JudgedRound | None = None) -> None:
        """All answers of a round, and the judge's beside them; recorded again with more, it takes the first's place."""
        self.answers[round] = granted
        if self.judged is not None and judged is not None:
            self.judged[round] = judged

    @property
    def newest(self) -> int:
        """The last round with an answer; 0 before any."""
        return max(self.answers, default=0)

    def standing(self) -> Standing:
        """Where the test stands after all rounds so far."""
        return Standing(self.evidence(self.newest), self.bar)

    def evidence(self, newest: int) -> float:
        """The evidence after a round, in which there may have been no answer."""
        newest = max(newest, self.first - 1)
        total = weight_after(newest, self.rounds)
        for _, evidence in self._stretches(newest):
            total += evidence
        return total

    def worst(self, newest: int) -> int | None:
        """The first round of the stretch with most evidence; None where there is no answer that counts."""
        stretches = [(evidence, round) for round, evidence in self._stretches(newest) if round in self.answers]
        return max(stretches)[1] if stretches else None

    def _stretches(self, newest: int) -> Iterator[tuple[int, float]]:
        """The evidence of each stretch up to a round with the round that it begins in, the shortest first."""
        wins, losses, bets = 0.0, 0.0, NO_BETS
        for round in range(newest, self.first - 1, -1):
            granted = self.answers.get(round, NOTHING)
            wins, losses = wins + granted.wins, losses + granted.losses
            logarithm = log_evidence(wins, losses)
            if self.judged is not None:
                if round in self.judged:
                    bets = tuple(map(sum, zip(bets, self.judged[round].log_bets, strict=True)))
                logarithm = with_judge(logarithm, bets)
            yield round, start_weight(round, self.rounds) * math.exp(min(MOST_EVIDENCE, logarithm))

    def spend(self, newest: int | None = None) -> None:
        """After an alarm that was acted on: the answers so far have had their say.

        Stretches that had begun are dropped, and the mixture goes on with the weight W < 1 of those that begin later,
        against the same bar. From there it is again a supermartingale, beginning at W, so a further alarm with nothing
        wrong since has a probability of at most false_alarm * W.
        """
        self.first = max(self.first, (self.newest if newest is None else newest) + 1)

    def state(self) -> dict[str, Any]:
        """What `restore` needs."""
        answers = [(round, *astuple(granted)) for round, granted in self.answers.items()]
        judged = {str(round): each.state() for round, each in (self.judged or {}).items()}
        return {"first": self.first, "answers": answers, **({"judged": judged} if judged else {})}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        self.first = state["first"]
        self.answers = {round: Granted(*granted) for round, *granted in state["answers"]}
        if self.judged is not None:
            saved = state.get("judged", {})
            self.judged = {int(round): JudgedRound.restored(each) for round, each in saved.items()}
