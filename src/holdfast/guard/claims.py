"""The evidence that people do not grant what the ensemble claims for the policy.

Where a reward is being hacked the ensemble says that the policy gets better and better, and people say that it does
not. The null hypothesis: in a round's pairs against an opponent people prefer the policy at least as often as the
ensemble claims on average, m, or half the time where it claims less. After w wins and l losses the likelihood ratio of
a rate q < m to m is (q/m)^w ((1-q)/(1-m))^l. The pairs' chances p_i may differ, as long as their mean is at least m:

    E[ratio] = prod (b - p_i (b - a)) <= (b - mean(p) (b - a))^n <= 1,    a = q/m < 1 < b = (1-q)/(1-m)

by the inequality of arithmetic and geometric means, so it is a supermartingale as in `guard/sequential.py`. A tie, half
a win, gives the root of a b, which is below their mean. Here q lies d log-odds below m, so that rounds with different
claims add up, and the evidence is the mean over the d in `STEPS`. The ratio is exp(d l) / (m + (1 - m) exp(d))^n: with
the mean claim of all of a round's pairs it is at most the product over those asked for first and those topped up.

Every policy is a little better by the ensemble that it was trained on than it is, and the next refresh sees to that. So
claims are held against a policy only where the same ensemble has judged for `PATIENCE` rounds, and people fell short of
what it claimed in each of the last ones. To leave evidence out only lowers it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# How far below the claims people may be, in log-odds: where a half is claimed, a twentieth to a quarter of all pairs.
STEPS = (0.2, 0.4, 0.7, 1.2)
# A claim of certainty would be proved wrong for ever by one unlucky answer.
SUREST = 0.95
PATIENCE = 3
# The version of a reward that claims nothing yet (`guard/scale.py`).
UNCLAIMED = 0


@dataclass(frozen=True)
class Granted:
    """The answers of a round against one opponent: wins and losses of the policy, the share that was claimed, and the
    version of the ensemble that claimed it, 0 where nothing was claimed."""

    wins: float
    losses: float
    claimed: float = 0.5
    ensemble: int = 0

    @property
    def pairs(self) -> float:
        return self.wins + self.losses

    @property
    def due(self) -> float:
        """The rate that people have to grant: what is claimed, and no less than a half."""
        return min(SUREST, max(0.5, self.claimed))


Ratios = tuple[float, ...]
NO_ANSWERS: Ratios = (0.0,) * len(STEPS)


def held_against(rounds: Sequence[Sequence[Granted]]) -> int:
    """How many rounds, from the newest back, the claims of the ensemble in use are held against the policy; often 0.

    `rounds` has the newest first, each with its answers against all opponents.
    """
    if not rounds or not rounds[0] or rounds[0][0].ensemble == UNCLAIMED:
        return 0
    ensemble = rounds[0][0].ensemble
    same = [bool(answers) and all(each.ensemble == ensemble for each in answers) for answers in rounds]
    count = same.index(False) if False in same else len(same)
    patient = count >= PATIENCE and all(short(answers) for answers in rounds[:PATIENCE])
    return count if patient else 0


def short(answers: Sequence[Granted]) -> bool:
    """Whether people granted less than was due in a round, over all opponents."""
    return math.fsum(each.wins - each.due * each.pairs for each in answers) < 0


def log_ratios(granted: Granted) -> Ratios:
    """The logarithm of the likelihood ratio for each of `STEPS`."""
    due = granted.due
    return tuple(
        granted.wins * math.log(low / due) + granted.losses * math.log((1.0 - low) / (1.0 - due))
        for low in (below(due, step) for step in STEPS)
    )


def below(rate: float, step: float) -> float:
    """The rate so many log-odds lower."""
    return rate / (rate + (1.0 - rate) * math.exp(step))


def summed(several: Iterable[Ratios]) -> Ratios:
    """The log-ratios of all answers together."""
    return tuple(math.fsum(column) for column in zip(NO_ANSWERS, *several, strict=True))


def log_mean(ratios: Sequence[float]) -> float:
    """The logarithm of the mean of what these are the logarithms of."""
    highest = max(ratios)
    return highest + math.log(math.fsum(math.exp(ratio - highest) for ratio in ratios) / len(ratios))
