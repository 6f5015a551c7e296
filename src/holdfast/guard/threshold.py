"""How much evidence is an alarm, for a run whose audits are planned.

Ville's inequality gives the bar 1 / false_alarm for any number of rounds and pairs, decided in any way. A run plans its
audits: so many pairs a round, topped up to so many where there is reason to. For such a plan the bar can be lower with
the same guarantee, which finds a hack sooner: it is the evidence that runs in which people have no preference at all,
and one ensemble says so throughout (the hardest case of the nulls), reach with probability `false_alarm`, found by
playing them. When pairs are topped up is
not known beforehand, so the highest bar of three ways counts: never, whenever the first pairs go against the policy,
and always.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from holdfast.guard.alarm import SHARES, Against
from holdfast.guard.claims import PATIENCE, Granted, log_ratios
from holdfast.guard.sequential import MOST_EVIDENCE, log_evidence, start_weight, weight_after

# Played runs: the probability at the bar is then known to about half a percentage point.
PLAYED = 2000
# A longer plan takes Ville's bar: playing it would take long, and little is lost.
LONGEST_PLAN = 20
SEED = 20_150_915
ABOVE_NOTHING = 1.001

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
    # No answers at all are evidence of 1.
    return min(ville, max(ABOVE_NOTHING, *bars))


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
    always = torch.full_like(asked, pairs)
    evidence_PR = (
        _evidence("reference", reference, always)
        + _evidence("anchor", anchor, asked)
        + _evidence("pointed", pointed, asked)
        + _claims(reference + anchor + pointed, always + 2 * asked)
    )
    # The smallest bar that no more than the allowed share of runs reaches.
    highest_P = evidence_PR.max(1).values
    return float(highest_P.quantile(1.0 - false_alarm, interpolation="higher"))


def _evidence(against: Against, wins_PR: Tensor, asked_PR: Tensor) -> Tensor:
    """evidence_PR after each round of many played runs, as `AlarmTest` has it for one."""
    rounds = wins_PR.shape[1]
    won_PR, lost_PR = wins_PR.cumsum(1), (asked_PR - wins_PR).cumsum(1)
    total_PR = torch.tensor([weight_after(n, rounds) for n in range(1, rounds + 1)], dtype=torch.float64)
    total_PR = total_PR.repeat(len(wins_PR), 1)
    for first in range(rounds):
        before = [x[:, first - 1 : first] if first else 0.0 for x in (won_PR, lost_PR)]
        stretch = _stretches(won_PR[:, first:] - before[0], lost_PR[:, first:] - before[1])
        total_PR[:, first:] += start_weight(first + 1, rounds) * stretch
    return SHARES[against] * total_PR


def _claims(wins_PR: Tensor, asked_PR: Tensor) -> Tensor:
    """evidence_PR from claims, where the ensemble says what is so: that people have no preference."""
    rounds = wins_PR.shape[1]
    won_PR, lost_PR = wins_PR.double(), (asked_PR - wins_PR).double()
    per_win, per_loss = (torch.tensor(log_ratios(one), dtype=torch.float64) for one in (Granted(1, 0), Granted(0, 1)))
    ratios_PRS = (won_PR[..., None] * per_win + lost_PR[..., None] * per_loss).cumsum(1)
    short_PR = won_PR < lost_PR
    total_PR = torch.tensor([weight_after(n, rounds) for n in range(1, rounds + 1)], dtype=torch.float64)
    total_PR = total_PR.repeat(len(wins_PR), 1)
    for first in range(rounds - PATIENCE + 1):
        before_PS = ratios_PRS[:, first - 1] if first else torch.zeros_like(ratios_PRS[:, 0])
        for last in range(first + PATIENCE - 1, rounds):
            held_P = short_PR[:, last - PATIENCE + 1 : last + 1].all(1)
            stretch_P = (ratios_PRS[:, last] - before_PS).clamp(max=MOST_EVIDENCE).exp().mean(1)
            total_PR[:, last] += start_weight(first + 1, rounds) * held_P * stretch_P
    return SHARES["claims"] * total_PR


def _stretches(wins: Tensor, losses: Tensor) -> Tensor:
    """The evidence of many stretches; the same counts come up again and again, and are worked out once."""
    most = int(losses.max()) + 1
    counts, places = torch.unique((wins * most + losses).long(), return_inverse=True)
    evidence = [math.exp(log_evidence(*divmod(float(key), most))) for key in counts.tolist()]
    return torch.tensor(evidence, dtype=torch.float64)[places]
