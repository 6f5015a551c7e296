"""How much evidence is an alarm, for a run whose audits are planned.

Ville's inequality gives the bar 1 / false_alarm for any number of rounds and pairs, decided in any way. A run plans its
audits: so many pairs a round, topped up to so many where there is reason to. For such a plan the bar can be lower with
the same guarantee, which finds a hack sooner: it is the evidence that runs in which people have no preference at all
(the hardest case of the null) reach with probability `false_alarm`, found by playing them. When pairs are topped up is
not known beforehand, so the highest bar of three ways counts: never, whenever the first pairs go against the policy,
and always.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from holdfast.guard.sequential import SequentialTest

# Played runs: the probability at the bar is then known to about half a percentage point.
PLAYED = 2000
# A longer plan takes Ville's bar: playing it would take long, and little is lost.
LONGEST_PLAN = 20
SEED = 20_150_915

TopUp = Callable[[Tensor, int], Tensor]
WAYS: tuple[TopUp, ...] = (
    lambda wins_P, pairs: torch.zeros_like(wins_P, dtype=torch.bool),
    lambda wins_P, pairs: wins_P < pairs / 2,
    lambda wins_P, pairs: torch.ones_like(wins_P, dtype=torch.bool),
)


@lru_cache(maxsize=64)
def planned_bar(false_alarm: float, rounds: int, pairs: int, most: int) -> float:
    """The bar for a plan of `pairs` of each kind in each of `rounds`, or up to `most` of the two against the anchor."""
    ville = 1.0 / false_alarm
    if rounds > LONGEST_PLAN or pairs == 0:
        return ville
    bars = [_bar(false_alarm, rounds, pairs, max(pairs, most), way) for way in WAYS]
    return min(ville, max(bars))


def _bar(false_alarm: float, rounds: int, pairs: int, most: int, way: TopUp) -> float:
    rng = torch.Generator().manual_seed(SEED)

    def tosses(count: int) -> Tensor:
        return torch.binomial(
            torch.full((PLAYED, rounds), float(count)), torch.full((PLAYED, rounds), 0.5), generator=rng
        )

    reference, anchor, pointed = tosses(pairs), tosses(pairs), tosses(pairs)
    topped_up = way(torch.minimum(anchor, pointed), pairs)
    anchor, pointed = (first + topped_up * tosses(most - pairs) for first in (anchor, pointed))
    asked = pairs + topped_up * (most - pairs)
    rows = zip(reference, anchor, pointed, asked, strict=True)
    highest = [_highest(rounds, pairs, *(row.tolist() for row in each)) for each in rows]
    # The smallest bar that no more than the allowed share of runs reaches.
    return float(torch.tensor(highest, dtype=torch.float64).quantile(1.0 - false_alarm, interpolation="higher"))


def _highest(
    rounds: int, pairs: int, reference: list[float], anchor: list[float], pointed: list[float], asked: list[float]
) -> float:
    test = SequentialTest(0.5, rounds)
    highest = 0.0
    for n in range(rounds):
        test.record(n + 1, "reference", reference[n], pairs - reference[n])
        test.record(n + 1, "anchor", anchor[n], asked[n] - anchor[n])
        test.record(n + 1, "pointed", pointed[n], asked[n] - pointed[n])
        highest = max(highest, test.evidence().value)
    return highest
