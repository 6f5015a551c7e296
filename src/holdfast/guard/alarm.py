"""The guard's alarm: do people still like the policy at least as well as the one it would be taken back to?

Null hypothesis: in every round people prefer the policy to the anchor, and to the reference, with probability at least
1/2, and do so too in pointed pairs, in which the ensemble is surest of the policy: there it should win more, if the
reward means anything. Each of the three is a `SequentialTest`.

Beside them stands a second question, of all pairs together: do people grant what the ensemble claims for the policy
(`guard/claims.py`)? A policy that is hacked slowly, or in a way that people do not mind much, falls behind the claims
long before it falls behind the anchor. A reward that claims too much for a policy that gets better all the same hacks
nobody, so while people like it better this evidence is left out, which only lowers the whole.

Of the whole, four tenths are evidence from claims, three from pointed pairs, and of the rest four fifths against the
anchor: a hacked policy falls behind the anchor before it falls behind the reference, and first in the answers that
training pushes most. A mean of supermartingales is one, so the whole reaches 1 / false_alarm with probability at most
false_alarm in a run in which both nulls hold. That is the guarantee for the first alarm of a run; for audits that are
planned `guard/threshold.py` has a lower bar with the same one. After a rollback the evidence is spent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from holdfast.guard.claims import NO_ANSWERS, PATIENCE, SUREST, Granted, held_against, log_mean, log_ratios, summed
from holdfast.guard.judged import JudgedRound
from holdfast.guard.sequential import MOST_EVIDENCE, NOTHING, SequentialTest, start_weight, weight_after
from holdfast.statistics import normal_quantile

# What a pair is: the policy's answer beside the reference's, or the anchor's, which is the last good policy, as they
# come; pointed: beside the anchor's, where of several pairs the ensemble is surest of the policy.
Against = Literal["reference", "anchor", "pointed"]
OPPONENTS: tuple[Against, ...] = ("reference", "anchor", "pointed")
# Error level of "credibly above": it only names an alarm, and raises none.
CREDIBLE = 0.05
SHARES: dict[Against | Literal["claims"], float] = {"claims": 0.4, "pointed": 0.3, "anchor": 0.24, "reference": 0.06}


@dataclass(frozen=True)
class Shortfall:
    """All pairs since a round: in how many people preferred the policy, and in how many they should have by claims."""

    since: int
    pairs: float
    wins: float
    claimed: float

    @property
    def overclaims(self) -> bool:
        """Whether the claims are credibly above what people granted."""
        due = min(SUREST, max(1.0 - SUREST, self.claimed / self.pairs))
        return (self.wins - self.claimed) / math.sqrt(self.pairs * due * (1.0 - due)) < -normal_quantile(CREDIBLE)


@dataclass(frozen=True)
class Loss:
    """The stretch that speaks most for the policy having fallen behind, to the newest round.

    `pairs` are those that speak; `plain` are those against the same policy as they come, which no claim has chosen.
    """

    against: Against
    pairs: Shortfall
    plain: Shortfall

    @property
    def unnoticed(self) -> bool:
        """Whether the ensemble claims what people do not grant: at least half of the pairs, and credibly too much.

        An ensemble that claims less than half says itself that the policy has become worse, however much worse.
        """
        return self.plain.claimed >= self.plain.pairs / 2 and self.pairs.overclaims


@dataclass(frozen=True)
class Evidence:
    """How strongly the answers speak against the null: at most 1 on average where it holds, an alarm from `bar` on."""

    anchor: float
    reference: float
    pointed: float
    claims: float
    bar: float
    shortfall: Shortfall | None = None
    loss: Loss | None = None

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
        short = self.shortfall
        return (
            short is not None
            and short.claimed > short.wins
            and self.claims >= max(self.anchor, self.reference, self.pointed)
        )


class AlarmTest:
    """People's answers by round and opponent, and the evidence in them."""

    def __init__(self, false_alarm: float, rounds: int, bar: float | None = None, judged: bool = False) -> None:
        self._tests = {against: SequentialTest(false_alarm, rounds, bar, judged) for against in OPPONENTS}
        self._bar, self._rounds = self._tests["anchor"].bar, self._tests["anchor"].rounds

    def record(self, round: int, against: Against, granted: Granted, judged: JudgedRound | None = None) -> None:
        """All answers of a round against one opponent; recorded again with more of them, it takes the first's place."""
        self._tests[against].record(round, granted, judged)

    @property
    def newest(self) -> int:
        """The last round with an answer; 0 before any."""
        return max(test.newest for test in self._tests.values())

    @property
    def _first(self) -> int:
        """The first round that is not spent."""
        return self._tests["anchor"].first

    def has_claimed(self, ensemble: int, before: int) -> bool:
        """Whether a version of the ensemble made the claims of any round before this one."""
        answers = ((round, granted) for test in self._tests.values() for round, granted in test.answers.items())
        return any(granted.ensemble == ensemble for round, granted in answers if round < before)

    def evidence(self) -> Evidence:
        """What the run's answers say so far."""
        claims, shortfall = self._claims()
        newest = self.newest
        reference, anchor, pointed = (SHARES[who] * self._tests[who].evidence(newest) for who in OPPONENTS)
        found = Evidence(anchor, reference, pointed, claims, self._bar, shortfall)
        return replace(found, loss=self._loss(found.against))

    def _loss(self, against: Against) -> Loss | None:
        """What people granted and the ensemble claimed in the stretch that speaks most against the policy."""
        test, newest = self._tests[against], self.newest
        since = test.worst(newest)
        if since is None:
            return None
        rounds = range(since, newest + 1)
        pairs = shortfall(since, [test.answers[round] for round in rounds if round in test.answers])
        # Pointed pairs are against the last good policy, which is the reference before any round was good.
        others: tuple[Against, ...] = ("anchor", "reference") if against == "pointed" else (against,)
        known = ([self._tests[who].answers.get(round) for who in others] for round in rounds)
        plain = [granted for sides in known for granted in list(filter(None, sides))[:1]]
        return Loss(against, pairs, shortfall(since, plain) if plain else pairs)

    def _claims(self) -> tuple[float, Shortfall | None]:
        """The evidence from claims, and the stretch that has most of it."""
        newest = max(self.newest, self._first - 1)
        total, ratios, most, worst = weight_after(newest, self._rounds), NO_ANSWERS, 0.0, None
        rounds = range(newest, self._first - 1, -1)
        answers = [[test.answers[round] for test in self._tests.values() if round in test.answers] for round in rounds]
        held = 0 if self._cleared(newest) else held_against(answers)
        for length, round in enumerate(rounds[:held], start=1):
            ratios = summed([ratios, *map(log_ratios, answers[length - 1])])
            if length < PATIENCE:
                continue
            evidence = start_weight(round, self._rounds) * math.exp(min(MOST_EVIDENCE, log_mean(ratios)))
            total += evidence
            if evidence > most:
                most, worst = evidence, shortfall(round, [each for of_round in answers[:length] for each in of_round])
        return SHARES["claims"] * total, worst

    def _cleared(self, newest: int) -> bool:
        """Whether people have lately liked the policies better than those that a rollback would have gone back to.

        By more than one standard error, over as many rounds as the claims need to be held against them.
        """
        rounds = range(newest, max(self._first - 1, newest - PATIENCE), -1)
        anchor, reference = self._tests["anchor"].answers, self._tests["reference"].answers
        decisive = [anchor.get(round) or reference.get(round) or NOTHING for round in rounds]
        ahead = math.fsum(each.wins - each.losses for each in decisive)
        return ahead > math.sqrt(math.fsum(each.pairs for each in decisive))

    def spend(self) -> None:
        """After a rollback: the answers so far have had their say."""
        newest = self.newest
        for test in self._tests.values():
            test.spend(newest)

    def state(self) -> dict[str, Any]:
        return {against: test.state() for against, test in self._tests.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        for against, test in self._tests.items():
            test.restore(state[against])


def shortfall(since: int, answers: Sequence[Granted]) -> Shortfall:
    """What people granted in all these answers, and what was claimed."""
    return Shortfall(
        since,
        math.fsum(each.pairs for each in answers),
        math.fsum(each.wins for each in answers),
        math.fsum(each.pairs * each.claimed for each in answers),
    )
