"""The evidence of a gate: single findings, and the small statistics that they are made of.

Everything here is pure and in double precision. Shapes: P pair, R resample, F feature.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.statistics import binomial_tail


@dataclass(frozen=True)
class Stance:
    """A labelled comparison, and what a member thought of it that had not learnt from it.

    `round` is the policy generation and `share` the share of people for the first side. `old` and `new` are the
    log-odds of the first side by the version in use and by the candidate; `new` is None where the candidate has learnt
    from the label. `longer` is how many tokens the first side has more. `fresh` labels are those that the version
    in use does not know; they are the newest generation.
    """

    round: int
    share: float
    old: float
    new: float | None
    longer: int = 0
    fresh: bool = False


@dataclass(frozen=True)
class Check:
    """One finding: what was measured, the limit it was held against, and both in words."""

    name: str
    passed: bool
    value: float
    limit: float
    words: str


@dataclass(frozen=True)
class AccuracyChange:
    """What accuracy a candidate lost (below 0: gained) on the same labels, and how sure that is.

    `worse` is the one-sided p-value of McNemar's exact test: the pairs on which the two differ are a coin toss where
    neither is better.
    """

    pairs: int
    loss: float
    error: float
    worse: float


def accuracy_change(opinions: Sequence[Stance]) -> AccuracyChange:
    """The paired change of accuracy; ties tell nothing and are left out."""
    clear = [j for j in opinions if j.new is not None and j.share != 0.5]
    lost = sum(_right(j.old, j.share) > _right(j.new or 0.0, j.share) for j in clear)
    won = sum(_right(j.old, j.share) < _right(j.new or 0.0, j.share) for j in clear)
    n = max(1, len(clear))
    # One pair is added to each kind: a few labels on which nothing happened prove nothing.
    error = math.sqrt((lost + won + 2) / (n + 2) / n)
    return AccuracyChange(
        pairs=len(clear),
        loss=(lost - won) / n,
        error=error,
        worse=binomial_tail(lost, lost + won, 0.5),
    )


def _right(margin: float, share: float) -> bool:
    return (margin > 0) == (share > 0.5)


def gain(opinions: Sequence[Stance]) -> tuple[float, float] | None:
    """By how much the candidate's opinions are more in step with people than the old ones, and the error of that.

        mean over labels of y (m_new / rms m_new - m_old / rms m_old),   y = 2 share - 1

    Firm opinions count for more than hesitant ones, which shows twice what accuracy shows; how firm they are on the
    whole counts for nothing. None without two labels that the candidate has not learnt from.
    """
    seen = [j for j in opinions if j.new is not None]
    old_P, new_P = (torch.tensor(m, dtype=torch.float64) for m in ([j.old for j in seen], [j.new for j in seen]))
    y_P = torch.tensor([2 * j.share - 1 for j in seen], dtype=torch.float64)
    if len(seen) < 2:
        return None
    scales = [max(1e-9, float(m_P.square().mean().sqrt())) for m_P in (old_P, new_P)]
    mean, error = mean_and_error(y_P * (new_P / scales[1] - old_P / scales[0]))
    return mean, max(error, 1e-9)


def columns(opinions: Sequence[Stance]) -> tuple[Tensor, Tensor, Tensor]:
    """Claims of the version in use and of the candidate, and people's shares, where neither has learnt."""
    seen = [j for j in opinions if j.new is not None]
    margins = [torch.tensor(values, dtype=torch.float64) for values in ([j.old for j in seen], [j.new for j in seen])]
    share_P = torch.tensor([j.share for j in seen], dtype=torch.float64)
    return torch.sigmoid(margins[0]), torch.sigmoid(margins[1]), share_P


def mean_and_error(value_P: Tensor) -> tuple[float, float]:
    """The mean and its standard error."""
    n = len(value_P)
    return float(value_P.mean()), float(value_P.std(unbiased=n > 1)) / math.sqrt(n)


BOOTSTRAPS = 200


def ece_resampled(probability_P: Tensor, outcome_P: Tensor, place_RP: Tensor, bins: int = 10) -> Tensor:
    """ece_R: the calibration error of each resample of pairs, sum over bins of |sum(claim - outcome)| / P."""
    bin_P = (probability_P * bins).long().clamp(0, bins - 1)
    missed_P = probability_P - outcome_P
    sums_RB = torch.zeros(len(place_RP), bins, dtype=torch.float64)
    sums_RB.scatter_add_(1, bin_P[place_RP], missed_P[place_RP])
    return sums_RB.abs().sum(1) / len(probability_P)


def resamples(pairs: int) -> Tensor:
    """place_RP: pairs drawn with replacement, the same ones every time."""
    return torch.randint(pairs, (BOOTSTRAPS, pairs), generator=torch.Generator().manual_seed(0))


def logistic(features_PF: Tensor, share_P: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """Weights_F of P(first side) = sigma(features . w), and their covariance, by Newton's method.

    `ridge` is the precision of a prior around 0: it keeps weights finite where one feature explains every label.
    """
    count = features_PF.shape[1]
    weights_F = torch.zeros(count, dtype=torch.float64)
    prior_FF = ridge * torch.eye(count, dtype=torch.float64)
    information_FF = prior_FF
    for _ in range(40):
        p_P = torch.sigmoid(features_PF @ weights_F)
        information_FF = (features_PF * (p_P * (1 - p_P))[:, None]).T @ features_PF + prior_FF
        step_F = torch.linalg.solve(information_FF, features_PF.T @ (share_P - p_P) - ridge * weights_F)
        # A full Newton step can overshoot from 0; half-steps of at most 1 get there all the same.
        weights_F = weights_F + step_F * min(1.0, 1.0 / max(1e-12, float(step_F.abs().max())))
        if float(step_F.abs().max()) < 1e-10:
            break
    return weights_F, torch.linalg.inv(information_FF)
