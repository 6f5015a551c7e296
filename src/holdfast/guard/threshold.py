"""How much evidence is an alarm, for a run whose audits are planned.

Ville's inequality gives the bar 1 / false_alarm for any number of rounds and pairs, decided in any way. A run plans its
audits: so many pairs a round, topped up to so many where there is reason to. For such a plan the bar can be lower with
the same guarantee, which finds a hack sooner: it is the evidence that runs in which people have no preference at all,
and one ensemble says so throughout (the hardest case of the nulls), reach with probability `false_alarm`, found by
playing them. When pairs are topped up is
not known beforehand, so the highest bar of three ways counts: never, whenever the first pairs go against the policy,
and always. Where a judge answers beside people nobody knows how far it agrees with them: then the highest of several
agreements counts as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from holdfast.guard.alarm import SHARES, Against
from holdfast.guard.claims import PATIENCE, Granted, log_ratios
from holdfast.guard.judged import BETS, AskingPlan, JudgedPair, JudgedRound, plan_for
from holdfast.guard.sequential import MOST_EVIDENCE, log_evidence, start_weight, weight_after

# Played runs: the probability at the bar is then known to about half a percentage point.
PLAYED = 2000
# A longer plan takes Ville's bar: playing it would take long, and little is lost.
LONGEST_PLAN = 20
SEED = 20_150_915
ABOVE_NOTHING = 1.001
# How often a judge agrees with people, where there is one.
AGREEMENTS = (0.85, 0.7)

# By how far the first pairs were won beyond a half.
TopUp = Callable[[Tensor], Tensor]
WAYS: tuple[TopUp, ...] = (
    lambda ahead_PR: torch.zeros_like(ahead_PR, dtype=torch.bool),
    lambda ahead_PR: ahead_PR < 0,
    lambda ahead_PR: torch.ones_like(ahead_PR, dtype=torch.bool),
)


@lru_cache(maxsize=64)
def planned_bar(false_alarm: float, rounds: int, pairs: int, most: int, judged: bool = False) -> float:
    """The bar for a plan of `pairs` of each kind in each of `rounds`, or up to `most` of the two against the anchor."""
    ville = 1.0 / false_alarm
    if rounds > LONGEST_PLAN or pairs == 0:
        return ville
    judges = AGREEMENTS if judged else (None,)
    bars = [_bar(false_alarm, rounds, pairs, max(pairs, most), way, judge) for way in WAYS for judge in judges]
    # No answers at all are evidence of 1.
    return min(ville, max(ABOVE_NOTHING, *bars))


@dataclass(frozen=True)
class _Tosses:
    """Played answers of people without a preference, by run and round; with a judge, what each bet makes of them."""

    wins_PR: Tensor
    asked_PR: Tensor
    bets_PRB: Tensor | None = None

    def __add__(self, more: _Tosses) -> _Tosses:
        bets_PRB = None if self.bets_PRB is None or more.bets_PRB is None else self.bets_PRB + more.bets_PRB
        return _Tosses(self.wins_PR + more.wins_PR, self.asked_PR + more.asked_PR, bets_PRB)

    def where(self, some_PR: Tensor) -> _Tosses:
        bets_PRB = None if self.bets_PRB is None else self.bets_PRB * some_PR[..., None]
        return _Tosses(self.wins_PR * some_PR, self.asked_PR * some_PR, bets_PRB)


def _tosses(count: int, rounds: int, judge: float | None, rng: torch.Generator) -> _Tosses:
    """So many pairs in each round, or as many as tell the same where a judge answers, which agrees so often."""

    def heads(of_PR: Tensor, share: float) -> Tensor:
        return torch.binomial(of_PR, torch.full_like(of_PR, share), generator=rng)

    whole = torch.full((PLAYED, rounds), float(count))
    if judge is None:
        return _Tosses(heads(whole, 0.5), whole)
    # In the first round nothing is known of the judge, later all there is to know.
    known = 2.0 * judge - 1.0
    first, later = AskingPlan(), plan_for(known**2, known)
    parts = []
    for plan, column in ((first, slice(0, 1)), (later, slice(1, None))):
        pairs_PR = torch.full_like(whole, float(plan.pairs(count)))[:, column]
        asked_PR = heads(pairs_PR, plan.share)
        agreed_PR = heads(asked_PR, judge)
        counts = {  # by what the judge said and what people did
            JudgedPair(0.5, 0.5): (up := heads(agreed_PR, 0.5)), JudgedPair(-0.5, -0.5): agreed_PR - up,
            JudgedPair(-0.5, 0.5): (against := heads(asked_PR - agreed_PR, 0.5)),
            JudgedPair(0.5, -0.5): asked_PR - agreed_PR - against,
            JudgedPair(0.5, None): (alone := heads(pairs_PR - asked_PR, 0.5)),
            JudgedPair(-0.5, None): pairs_PR - asked_PR - alone,
        }  # fmt: skip
        bets_PRB = torch.zeros(*pairs_PR.shape, len(BETS))
        for pair, number_PR in counts.items():
            bets_PRB += number_PR[..., None] * torch.tensor(JudgedRound(plan, {pair: 1}).log_bets)
        parts.append(_Tosses(up + against, asked_PR, bets_PRB))
    joined = [torch.cat([getattr(part, name) for part in parts], 1) for name in ("wins_PR", "asked_PR", "bets_PRB")]
    return _Tosses(*joined)


def _bar(false_alarm: float, rounds: int, pairs: int, most: int, way: TopUp, judge: float | None) -> float:
    rng = torch.Generator().manual_seed(SEED)

    def tosses(count: int) -> _Tosses:
        return _tosses(count, rounds, judge, rng)

    reference, anchor, pointed = tosses(pairs), tosses(pairs), tosses(pairs)
    topped_up = way(torch.minimum(anchor.wins_PR - anchor.asked_PR / 2, pointed.wins_PR - pointed.asked_PR / 2))
    anchor, pointed = (first + tosses(most - pairs).where(topped_up) for first in (anchor, pointed))
    everything = reference + anchor + pointed
    evidence_PR = (
        _evidence("reference", reference)
        + _evidence("anchor", anchor)
        + _evidence("pointed", pointed)
        + _claims(everything.wins_PR, everything.asked_PR)
    )
    # The smallest bar that no more than the allowed share of runs reaches.
    highest_P = evidence_PR.max(1).values
    return float(highest_P.quantile(1.0 - false_alarm, interpolation="higher"))


def _evidence(against: Against, tosses: _Tosses) -> Tensor:
    """evidence_PR after each round of many played runs, as `AlarmTest` has it for one."""
    rounds = tosses.wins_PR.shape[1]
    won_PR, lost_PR = tosses.wins_PR.cumsum(1), (tosses.asked_PR - tosses.wins_PR).cumsum(1)
    bets_PRB = None if tosses.bets_PRB is None else tosses.bets_PRB.double().cumsum(1)
    total_PR = torch.tensor([weight_after(n, rounds) for n in range(1, rounds + 1)], dtype=torch.float64)
    total_PR = total_PR.repeat(len(won_PR), 1)
    for first in range(rounds):
        before = [x[:, first - 1 : first] if first else 0.0 for x in (won_PR, lost_PR)]
        stretch_PR = _stretches(won_PR[:, first:] - before[0], lost_PR[:, first:] - before[1])
        if bets_PRB is not None:
            bet_PRB = bets_PRB[:, first:] - (bets_PRB[:, first - 1 : first] if first else 0.0)
            stretch_PR = (stretch_PR + bet_PRB.clamp(max=MOST_EVIDENCE).exp().mean(-1)) / 2.0
        total_PR[:, first:] += start_weight(first + 1, rounds) * stretch_PR
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
