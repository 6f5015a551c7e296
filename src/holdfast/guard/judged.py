"""A judge beside people: the judge answers every pair, people some of them by lot, and both count for what they are.

With h what people say of a pair and g what the judge says (1/2 where the policy won, -1/2 where it lost, 0 for a tie),
xi = 1 where people were asked, which has the probability pi whatever the pair, and a weight w for the judge:

    z = w g + xi / pi (h - w g)          E[z] = E[h], for every judge and every w

(prediction-powered inference: Angelopoulos et al. 2023). A judge that agrees with people takes variance out of z, one
that does not puts none in where w is learnt: w = E[h g] / E[g^2] over pairs that both have answered, in earlier rounds.
Nobody has to trust the judge: whatever it says, z speaks for people alone.

Where people like the policy at least as well as the other, E[z] is at least 0, so that for a bet b >= 0 that can never
lose more than there is the product of 1 - b z is a supermartingale: evidence as in `guard/sequential.py`. Of the bets
in `BETS`, as shares of the largest b that is safe, the mean is taken. Half of the evidence of a stretch stays that of
people's answers alone, so no judge, however wrong or hostile, takes more than log 2 off its logarithm (compare
R-AutoEval+, Park et al. 2025).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import cached_property
from typing import Any

from holdfast.guard.claims import log_mean
from holdfast.statistics import Interval, Z, normal_quantile

# Shares of the largest safe bet: people dislike a hacked policy a little, or clearly.
BETS = (0.125, 0.25, 0.5, 0.9)
# Pairs that both have answered before the judge counts for anything, and as many as say "no weight" from the start.
FEWEST, DOUBT = 40, 10.0
# People are asked about no smaller share, and about no more pairs than so many times what they would answer alone.
LEAST_SHARE, MOST_PAIRS = 0.25, 1.6
# So far are the numbers of a round's pairs apart, to have room for those that the judge answers alone.
STRIDE = math.ceil(MOST_PAIRS)
# With so little agreement a judge saves nothing worth the pairs, and people answer everything.
LITTLE = 0.1
LEVEL = 0.05
NO_BETS = (0.0,) * len(BETS)


@dataclass(frozen=True)
class JudgedPair:
    """One pair: what the judge said, and what people did, None where they were not asked; 1/2 is a win, 0 a tie."""

    judge: float
    people: float | None


@dataclass(frozen=True)
class AskingPlan:
    """How a round asks: people with the probability `share`, and the judge, who counts with `weight`, about all."""

    share: float = 1.0
    weight: float = 0.0
    agreed: float = 0.0  # the square of the correlation of judge and people, as far as it is certain

    def pairs(self, alone: int) -> int:
        """Pairs that tell as much as so many that people answer alone, by the variance of z."""
        return math.ceil(alone * ((1.0 - self.agreed) / self.share + self.agreed))


ALONE = AskingPlan()


def plan_for(agreed: float, weight: float) -> AskingPlan:
    """The smallest share of people with which a round needs no more than `MOST_PAIRS` times its pairs."""
    if agreed < LITTLE:
        return AskingPlan(1.0, weight)
    return AskingPlan(max(LEAST_SHARE, (1.0 - agreed) / (MOST_PAIRS - agreed)), weight, agreed)


@dataclass(frozen=True)
class JudgedRound:
    """A round's pairs against one opponent, counted by what judge and people said, and how they were asked."""

    plan: AskingPlan
    counts: Mapping[JudgedPair, int] = field(default_factory=dict)

    @staticmethod
    def of(plan: AskingPlan, pairs: Iterable[JudgedPair]) -> JudgedRound:
        return JudgedRound(plan, Counter(pairs))

    def z(self, pair: JudgedPair) -> float:
        """What a pair says of people's preference, beyond indifference."""
        judged = self.plan.weight * pair.judge
        return judged if pair.people is None else judged + (pair.people - judged) / self.plan.share

    def state(self) -> dict[str, Any]:
        """As a checkpoint holds it."""
        counts = [[pair.judge, pair.people, count] for pair, count in sorted(self.counts.items(), key=str)]
        return {"plan": list(astuple(self.plan)), "counts": counts}

    @staticmethod
    def restored(state: Mapping[str, Any]) -> JudgedRound:
        return JudgedRound(AskingPlan(*state["plan"]), {JudgedPair(g, h): count for g, h, count in state["counts"]})

    @cached_property
    def log_bets(self) -> tuple[float, ...]:
        """The logarithm of what each of the bets has become."""
        # Nothing lies further out than people's win where the judge saw a loss.
        furthest = (1.0 + abs(self.plan.weight) * (1.0 - self.plan.share)) / (2.0 * self.plan.share)
        return tuple(
            math.fsum(count * math.log1p(-bet / furthest * self.z(pair)) for pair, count in self.counts.items())
            for bet in BETS
        )


def with_judge(people: float, log_bets: Sequence[float]) -> float:
    """The logarithm of the evidence of a stretch: half that of people's answers alone, half the mean of the bets."""
    return log_mean((people, log_mean(log_bets)))


@dataclass
class Agreement:
    """How far judge and people agree, by pairs that both have answered: sums of g^2, h^2 and h g."""

    pairs: int = 0
    judge: float = 0.0
    people: float = 0.0
    both: float = 0.0

    def add(self, pairs: Iterable[JudgedPair]) -> None:
        for pair in pairs:
            if pair.people is not None:
                self.pairs += 1
                self.judge += pair.judge**2
                self.people += pair.people**2
                self.both += pair.judge * pair.people

    @property
    def certain(self) -> float:
        """The square of the correlation at its lower limit (Fisher's z), 0 while little is known."""
        if self.pairs < FEWEST or not self.judge or not self.people:
            return 0.0
        correlation = min(0.999, abs(self.both) / math.sqrt(self.judge * self.people))
        low = math.atanh(correlation) - normal_quantile(LEVEL) / math.sqrt(self.pairs - 3.0)
        return math.tanh(max(0.0, low)) ** 2

    @property
    def weight(self) -> float:
        """What the judge's word is worth, by least squares; drawn a little towards nothing."""
        return max(-1.0, min(1.0, self.both / (self.judge + DOUBT / 4.0))) if self.pairs else 0.0

    def plan(self) -> AskingPlan:
        """How the next round asks: people about every pair, until it is certain that the judge is worth something."""
        return plan_for(self.certain, self.weight)

    def state(self) -> dict[str, Any]:
        return dict(vars(self))

    def restore(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)


def powered_interval(rounds: Sequence[JudgedRound]) -> Interval:
    """In what share of pairs people prefer the policy, by judge and people together, with a normal interval."""
    said = [(each.z(pair), count) for each in rounds for pair, count in each.counts.items()]
    count = sum(n for _, n in said)
    mean = math.fsum(z * n for z, n in said) / count
    variance = math.fsum(n * (z - mean) ** 2 for z, n in said) / max(1, count - 1)
    width = Z * math.sqrt(variance / count)
    return Interval(0.5 + mean, 0.5 + mean - width, 0.5 + mean + width).within(0.0, 1.0)
