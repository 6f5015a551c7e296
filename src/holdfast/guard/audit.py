"""What people said about fresh pairs, beside what the ensemble claimed.

Shapes: P pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean

import torch

from holdfast.algorithms.calibration import Bin, brier, ece, reliability
from holdfast.checkpoint.files import JSON
from holdfast.guard.alarm import OPPONENTS, Against
from holdfast.preferences.comparison import Label
from holdfast.statistics import Interval, mean_interval, normal_tail, wilson

# How surprising the gap between claims and answers has to be before the claims are called wrong. A round is tested
# once, so one calibrated ensemble in a hundred is refreshed for nothing.
MISCALIBRATION_LEVEL = 0.01
# A claim of certainty has no variance, and one unlucky answer would then prove it wrong for ever.
SUREST = 0.999


@dataclass(frozen=True)
class AuditPair:
    """One fresh comparison: whether people preferred the policy's answer (1, 0, or 0.5 for a tie), and the
    ensemble's probability that they do.

    `labels` are the answers as they were given, and `alike` says that both sides read the same. Of a reward that is one
    number `margin` is how much more the policy's answer got, and `parts` the same for each component."""

    comparison_id: str
    against: Against
    policy_won: float
    claim: float
    labels: tuple[Label, ...] = ()
    alike: bool = False
    margin: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Side:
    """All pairs against one opponent. `gap` is claimed less observed: above 0 the ensemble claims too much.

    `higher` is in how many a reward that is one number was higher for the policy; None for an ensemble.
    """

    against: Against
    pairs: int
    wins: float
    rate: Interval
    claimed: float
    gap: Interval
    higher: int | None = None

    @property
    def losses(self) -> float:
        return self.pairs - self.wins


@dataclass(frozen=True)
class AuditReport:
    """One round's audit, or that of a whole run. Numbers are None where there is no pair to take them from.

    The accuracy is over the `decided` pairs: ties are left out, and so are pointed pairs. Where nothing was `claimed`
    yet, no claim can be wrong.
    """

    pairs: int
    reference: Side | None
    anchor: Side | None
    pointed: Side | None
    accuracy: float | None
    decided: int
    ece: float | None
    brier: float | None
    bins: tuple[Bin, ...]
    gap_z: float
    gap_p: float
    claimed: bool = True

    @property
    def miscalibrated(self) -> bool:
        """Whether the claims differ from the answers by more than chance explains."""
        return self.claimed and self.gap_p < MISCALIBRATION_LEVEL

    @property
    def overclaims(self) -> bool:
        """Whether they are wrong in the ensemble's favour."""
        return self.miscalibrated and self.gap_z < 0

    @property
    def decisive(self) -> Side | None:
        """The pairs against the policy that a rollback goes back to: the reference, before any round was good."""
        return self.anchor or self.reference

    def record(self) -> dict[str, JSON]:
        """As an event holds it."""
        out: dict[str, JSON] = {
            "pairs": self.pairs,
            "accuracy": self.accuracy,
            "decided": self.decided,
            "ece": self.ece if self.claimed else None,
            "brier": self.brier if self.claimed else None,
            "reliability": [asdict(b) for b in self.bins if self.claimed],
            "gap_z": self.gap_z,
            "gap_p": self.gap_p,
        }
        for name, side in zip(OPPONENTS, (self.reference, self.anchor, self.pointed), strict=True):
            out[f"{name}_pairs"] = side.pairs if side else 0
            out[f"{name}_wins"] = side.wins if side else 0.0
            out[f"{name}_rate"] = asdict(side.rate) if side else None
            told = side if self.claimed else None
            out[f"claimed_{name}"] = told.claimed if told else None
            out[f"{name}_gap"] = asdict(told.gap) if told else None
        return out


def audit(pairs: Sequence[AuditPair], claimed: bool = True) -> AuditReport:
    """Win rates, claims, their gap, and how right and how calibrated the ensemble is on the policy's own answers.

    Pointed pairs were chosen, and are not what the policy says as it comes: nothing but their own side is told of them.
    """
    as_they_come = [p for p in pairs if p.against != "pointed"]
    outcomes, claims = [p.policy_won for p in as_they_come], [p.claim for p in as_they_come]
    outcome_P, claim_P = torch.tensor(outcomes, dtype=torch.float64), torch.tensor(claims, dtype=torch.float64)
    z = gap_z(claims, outcomes)
    return AuditReport(
        pairs=len(pairs),
        reference=side_of(pairs, "reference"),
        anchor=side_of(pairs, "anchor"),
        pointed=side_of(pairs, "pointed"),
        accuracy=accuracy(claims, outcomes),
        decided=sum(outcome != 0.5 for outcome in outcomes),
        ece=float(ece(claim_P, outcome_P)) if as_they_come else None,
        brier=float(brier(claim_P, outcome_P)) if as_they_come else None,
        bins=tuple(reliability(claim_P, outcome_P)) if as_they_come else (),
        gap_z=z,
        gap_p=min(1.0, 2.0 * normal_tail(abs(z))),
        claimed=claimed,
    )


def side_of(pairs: Sequence[AuditPair], against: Against) -> Side | None:
    """The pairs against one opponent; None where there are none."""
    mine = [pair for pair in pairs if pair.against == against]
    if not mine:
        return None
    wins, claimed = math.fsum(p.policy_won for p in mine), fmean(p.claim for p in mine)
    gap = mean_interval([p.claim - p.policy_won for p in mine]).within(-1.0, 1.0)
    margins = [pair.margin for pair in mine if pair.margin is not None]
    higher = sum(margin > 0 for margin in margins) if margins else None
    return Side(against, len(mine), wins, wilson(wins, len(mine)), claimed, gap, higher)


def accuracy(claims: Sequence[float], outcomes: Sequence[float]) -> float | None:
    """Share of pairs, ties left out, in which the ensemble sided with people; a claim of 1/2 is half right."""
    right = [
        0.5 if claim == 0.5 else float((claim > 0.5) == (outcome > 0.5))
        for claim, outcome in zip(claims, outcomes, strict=True)
        if outcome != 0.5
    ]
    return fmean(right) if right else None


def gap_z(claims: Sequence[float], outcomes: Sequence[float]) -> float:
    """sum(outcome - claim) / sqrt(sum claim (1 - claim)): about standard normal where the claims are right.

    Below 0 the ensemble claims too much. A tie varies less than a win or a loss, so with ties the test is careful.
    """
    surest = [min(SUREST, max(1.0 - SUREST, claim)) for claim in claims]
    variance = math.fsum(claim * (1.0 - claim) for claim in surest)
    if variance == 0.0:
        return 0.0
    return math.fsum(y - claim for y, claim in zip(outcomes, surest, strict=True)) / math.sqrt(variance)
