"""The test over rounds: do people still like the policy at least as well as the one it would be taken back to?

Null hypothesis: in every round people prefer the policy to the anchor, and to the reference, with probability at least
1/2, and do so too in pointed pairs, in which the ensemble is surest of the policy or the policy has moved furthest from
the anchor: there it should win more, if that was for the better. After w wins and l losses the likelihood ratio of a
probability q < 1/2 to 1/2 is (2q)^w (2(1-q))^l, and under the null its expectation never grows with another pair: a
supermartingale, for any q and so for a mixture over q. A tie counts half to each side, which only lowers it. Evidence
from round s on is the mixture with the prior Beta(2, 2) on (0, 1/2):

    E_s = integral over q in (0, 1/2) of 12 q (1-q) (2q)^w (2(1-q))^l dq
        = 2^(n+1) B(w+2, l+2) I_{1/2}(w+2, l+2) / B(2, 2)                                 n = w + l

Beside it stands a second question, of all pairs together: do people grant what the ensemble claims for the policy
(`guard/claims.py`)? A policy that is hacked slowly, or in a way that people do not mind much, falls behind the claims
long before it falls behind the anchor. A reward that claims too much for a policy that gets better all the same hacks
nobody, so while people like it better this evidence is left out, which only lowers the whole.

When it begins to go wrong is not known, so the run's evidence is a mixture over first rounds s too, with weights that
sum to 1 over all rounds that may come; a stretch that has not begun counts with E = 1. Of the whole, four tenths are
evidence from claims, three from pointed pairs, and of the rest four fifths against the anchor: a hacked policy falls
behind the anchor before it falls behind the reference, and first in the answers that training pushes most.

By Ville's inequality such a mixture reaches 1 / false_alarm with probability at most false_alarm in a run in which both
nulls hold, at whatever moment one looks and however the number of pairs was decided (Ramdas et al. 2023). That is the
guarantee for the first alarm of a run; for audits that are planned `guard/bar.py` has a lower bar with the same one.

After an alarm and a rollback the evidence is spent: stretches that had begun are dropped, and the mixture goes on with
the weight W < 1 of those that begin later, against the same bar. From there it is again a supermartingale, beginning
at W, so a further alarm with nothing wrong after the rollback has a probability of at most false_alarm * W.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache
from typing import Literal

from holdfast.control.state import JSON, State, check_kind, read_int, read_list
from holdfast.errors import HoldfastError
from holdfast.guard.audit import Against as Against
from holdfast.guard.claims import NO_ANSWERS, PATIENCE, Granted, held_against, log_mean, log_ratios, summed
from holdfast.guard.distributions import log_beta, log_incomplete_beta

Part = Against | Literal["claims"]
SHARES: dict[Part, float] = {"claims": 0.4, "pointed": 0.3, "anchor": 0.24, "reference": 0.06}
OPPONENTS: tuple[Against, ...] = ("reference", "anchor", "pointed")
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
class Shortfall:
    """All pairs since a round: in how many people preferred the policy, and in how many they should have by claims."""

    since: int
    pairs: float
    wins: float
    claimed: float


@dataclass(frozen=True)
class Evidence:
    """How strongly the answers speak against the null: at most 1 on average where it holds, an alarm from `bar` on."""

    anchor: float
    reference: float
    pointed: float
    claims: float
    bar: float
    shortfall: Shortfall | None = None

    @property
    def value(self) -> float:
        return self.anchor + self.reference + self.pointed + self.claims

    @property
    def alarmed(self) -> bool:
        return self.value >= self.bar

    @property
    def against(self) -> Against:
        """Whom the policy seems to have fallen behind."""
        most = max(self.anchor, self.reference, self.pointed)
        return "anchor" if self.anchor == most else "pointed" if self.pointed == most else "reference"

    @property
    def by_claims(self) -> bool:
        """Whether it is first of all the claims that speak against the policy."""
        found = self.shortfall
        return (
            found is not None
            and found.claimed > found.wins
            and self.claims >= max(self.anchor, self.reference, self.pointed)
        )


class SequentialTest:
    """People's answers by round, and the evidence in them."""

    def __init__(self, false_alarm: float, rounds: int, bar: float | None = None) -> None:
        if not 0.0 < false_alarm < 1.0:
            raise HoldfastError(f"A false-alarm probability of {false_alarm} is not possible; set one between 0 and 1.")
        self._bar = 1.0 / false_alarm if bar is None else bar
        self._rounds = max(1, rounds)
        self._first = 1  # stretches that begin earlier are spent
        self._tallies: dict[Against, dict[int, Granted]] = {against: {} for against in OPPONENTS}

    def record(self, round: int, against: Against, granted: Granted) -> None:
        """All answers of a round against one opponent; recorded again with more of them, it takes the first's place."""
        self._tallies[against][round] = granted

    @property
    def newest(self) -> int:
        """The last round with an answer; 0 before any."""
        return max((max(tally, default=0) for tally in self._tallies.values()), default=0)

    def has_claimed(self, ensemble: int, before: int) -> bool:
        """Whether a version of the ensemble made the claims of any round before this one."""
        answers = ((round, granted) for tally in self._tallies.values() for round, granted in tally.items())
        return any(granted.ensemble == ensemble for round, granted in answers if round < before)

    def evidence(self) -> Evidence:
        """What the run's answers say so far."""
        claims, shortfall = self._claims()
        return Evidence(
            self._evidence("anchor"), self._evidence("reference"), self._evidence("pointed"), claims, self._bar,
            shortfall,
        )  # fmt: skip

    def _evidence(self, against: Against) -> float:
        tally, newest = self._tallies[against], max(self.newest, self._first - 1)
        total, wins, losses = weight_after(newest, self._rounds), 0.0, 0.0
        for round in range(newest, self._first - 1, -1):
            granted = tally.get(round, NOTHING)
            wins, losses = wins + granted.wins, losses + granted.losses
            total += start_weight(round, self._rounds) * math.exp(min(MOST_EVIDENCE, log_evidence(wins, losses)))
        return SHARES[against] * total

    def _claims(self) -> tuple[float, Shortfall | None]:
        """The evidence from claims, and the stretch that has most of it."""
        newest = max(self.newest, self._first - 1)
        total, ratios, most, found = weight_after(newest, self._rounds), NO_ANSWERS, 0.0, None
        rounds = range(newest, self._first - 1, -1)
        answers = [[tally[round] for tally in self._tallies.values() if round in tally] for round in rounds]
        held = 0 if self._cleared(newest) else held_against(answers)
        for length, round in enumerate(rounds[:held], start=1):
            ratios = summed([ratios, *map(log_ratios, answers[length - 1])])
            if length < PATIENCE:
                continue
            evidence = start_weight(round, self._rounds) * math.exp(min(MOST_EVIDENCE, log_mean(ratios)))
            total += evidence
            if evidence > most:
                most, found = evidence, shortfall(round, [each for some in answers[:length] for each in some])
        return SHARES["claims"] * total, found

    def _cleared(self, newest: int) -> bool:
        """Whether people have lately liked the policies better than those that a rollback would have gone back to.

        By more than one standard error, over as many rounds as the claims need to be held against them.
        """
        rounds = range(newest, max(self._first - 1, newest - PATIENCE), -1)
        anchor, reference = self._tallies["anchor"], self._tallies["reference"]
        decisive = [anchor.get(round) or reference.get(round) or NOTHING for round in rounds]
        ahead = math.fsum(each.wins - each.losses for each in decisive)
        return ahead > math.sqrt(math.fsum(each.pairs for each in decisive))

    def spend(self) -> None:
        """After a rollback: the answers so far have had their say."""
        self._first = max(self._first, self.newest + 1)

    def state(self) -> State:
        tallies: State = {
            against: [[round, *astuple(found)] for round, found in sorted(tally.items())]
            for against, tally in self._tallies.items()
        }
        return {"kind": "sequential", "first": self._first, "tallies": tallies}

    def restore(self, state: Mapping[str, JSON]) -> None:
        check_kind(state, "sequential")
        self._first = read_int(state, "first")
        tallies = state.get("tallies")
        if not isinstance(tallies, Mapping):
            raise HoldfastError("The saved sequential test holds no answers; use another checkpoint.")
        self._tallies = {against: {} for against in OPPONENTS}
        for against, tally in self._tallies.items():
            for row in read_list(tallies, against):
                round, granted = _row(row)
                tally[round] = granted


def shortfall(since: int, answers: Sequence[Granted]) -> Shortfall:
    """What people granted in all these answers, and what was claimed."""
    return Shortfall(
        since,
        math.fsum(each.pairs for each in answers),
        math.fsum(each.wins for each in answers),
        math.fsum(each.pairs * each.claimed for each in answers),
    )


def _row(row: JSON) -> tuple[int, Granted]:
    if isinstance(row, str) or not isinstance(row, list | tuple) or len(row) not in (3, 5):
        raise HoldfastError(f"The saved sequential test holds {row!r} for a round; use another checkpoint.")
    numbers = [float(x) if isinstance(x, int | float) else math.nan for x in row]
    if not math.isfinite(math.fsum(numbers)):
        raise HoldfastError(f"The saved sequential test holds {row!r} for a round; use another checkpoint.")
    round, wins, losses = numbers[:3]
    # A run of before claims were remembered goes on without those: no ensemble has such a version.
    claimed, ensemble = numbers[3:] or (0.5, -round)
    return int(round), Granted(wins, losses, claimed, int(ensemble))
