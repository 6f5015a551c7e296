"""Whether new labels look as if they came from the same people as the earlier ones.

A labeller who errs gets held-out labels wrong as well, so no accuracy on the newest labels can tell a bad labeller from
a bad ensemble. Three things can, without the truth:

agreement   noise makes labels follow *every* opinion less. How far members' log-odds m predict the labels is learnt
            from earlier ones, P(first side) = sigma(s m), and what is missing in the new ones is put as the share of
            flips that would explain it:

                f = sum t (p - y) / sum t^2,   t = 2p - 1,   var f = sum t^2 p (1 - p) / (sum t^2)^2 + share of var s

            It is measured with the version in use, and again with the candidate wherever that has a member that has
            not learnt from the label; the milder finding counts. An ensemble that has gone wrong is out of step with
            good labels, but a candidate that learns from them falls into step; with coin tosses neither does.
            Comparisons that were asked again (see `repeats`) count in the same sum, with p the share of earlier ones
            that were answered as before: they tell as much as three times as many new ones.
position    which side is shown first is a matter of chance, so it can have no say.
length      the log-odds that a longer answer adds, beside the ensemble's opinion and by itself, against the same in
            earlier labels. Only a new liking for length counts: people may well turn against it, when a policy has
            learnt to pad. And only a strong one: on answers that have become too short people like the longer ones
            for good reasons. So a labeller for whom length counts about as much as the rest is not found.

Shapes: P pair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from holdfast.reward.evidence import Check, Stance, logistic
from holdfast.reward.repeats import Repeats
from holdfast.statistics import binomial_tail, normal_quantile
from holdfast.text import counted

# Fewer labels than these on one side, and nothing is compared.
FEWEST_FRESH = 20
FEWEST_EARLIER = 30

# What may happen to honest labels. Answers of a policy that has moved on are predicted a little worse, as if so many
# labels were flipped; people favour a side a little; a taste moves a little (log-odds for one standard deviation of
# the difference in length).
STALE = 0.03
SIDE = 0.1
TASTE = 0.6

# Error level of the two checks whose allowance makes false findings rarer still.
RARE = 0.005

NONE = Repeats()

# The opinions of a version and people's shares, label by label.
Columns = tuple[Tensor, Tensor]


def check_labels(
    fresh: Sequence[Stance], earlier: Sequence[Stance], level: float, repeats: Repeats = NONE
) -> list[Check]:
    """Agreement at the given error level, position, length; `fresh` are the new labels."""
    return [agreement(fresh, earlier, level, repeats), position(fresh), length(fresh, earlier)]


def agreement(fresh: Sequence[Stance], earlier: Sequence[Stance], level: float, repeats: Repeats = NONE) -> Check:
    """Whether the new labels follow members' opinions as the earlier ones do, and people answer as they did."""
    name = "labels/agreement"
    limit = normal_quantile(level)
    now_known, before_known = [j for j in fresh if j.new is not None], [j for j in earlier if j.new is not None]
    if len(fresh) < FEWEST_FRESH or len(before_known) < FEWEST_EARLIER:
        return Check(name, True, 0.0, limit, "too few labels to compare the new ones with earlier ones")
    by_old = _columns(earlier, "old")
    estimates = [flips([(_columns(fresh, "old"), by_old)], repeats)]
    if now_known:
        rest = [j for j in fresh if j.new is None]
        by_new = (_columns(now_known, "new"), _columns(before_known, "new"))
        estimates.append(flips([by_new, (_columns(rest, "old"), by_old)], repeats))
    share, error = min(estimates, key=lambda f: (f[0] - STALE) / f[1])
    z = (share - STALE) / error
    words = (
        f"beside earlier labels the new ones follow the members' opinions as if {max(0.0, share):.0%} of them "
        f"were flipped (give or take {error:.0%})"
    )
    if repeats.asked:
        again = counted(repeats.asked, "comparison that was", "comparisons that were")
        words += f"; of {again} asked again {repeats.same:g} came out as before"
    return Check(name, z <= limit, z, limit, words)


def flips(groups: Sequence[tuple[Columns, Columns]], repeats: Repeats = NONE) -> tuple[float, float]:
    """The share of flipped labels that explains how new labels follow opinions less than earlier ones, and its error.

    A group is new labels and earlier ones, each as (margin_P, share_P), with the opinions of one version.
    """
    missing = weight = noise = from_slopes = 0.0
    for (margin_P, y_P), before in groups:
        slope_1, variance_11 = logistic(before[0][:, None], before[1], ridge=0.1)
        p_P = torch.sigmoid(max(1e-3, float(slope_1[0])) * margin_P)
        t_P, noise_P = 2 * p_P - 1, p_P * (1 - p_P)
        missing += float((t_P * (p_P - y_P)).sum())
        weight += float((t_P**2).sum())
        noise += float((t_P**2 * noise_P).sum())
        # Slopes of two versions come from the same labels, so their errors are added up as they are.
        from_slopes += float((t_P * margin_P * noise_P).sum()) * math.sqrt(float(variance_11[0, 0]))
    if repeats.asked_before >= FEWEST_EARLIER:
        # The share is drawn a little towards a coin toss, so that it is never certain.
        p = (repeats.same_before + 1.0) / (repeats.asked_before + 2.0)
        t, noise_1 = 2.0 * p - 1.0, p * (1.0 - p)
        missing += t * (repeats.asked * p - repeats.same)
        weight += repeats.asked * t**2
        noise += repeats.asked * t**2 * noise_1
        # Other labels than those of the slopes, so this error is added to the noise.
        noise += (repeats.asked * t) ** 2 * noise_1 / repeats.asked_before
    weight = max(weight, 1e-9)
    return missing / weight, max(math.sqrt(noise + from_slopes**2) / weight, 1e-9)


def position(fresh: Sequence[Stance]) -> Check:
    """Whether the side shown first was chosen about as often as the other."""
    first, second = (sum(j.share > 0.5 for j in fresh), sum(j.share < 0.5 for j in fresh))
    count = max(1, first + second)
    p = binomial_tail(max(first, second), count, 0.5 + SIDE)
    share = first / count
    words = f"the side shown first was chosen {counted(first, 'time')} out of {count}"
    return Check("labels/position", p >= RARE, share, 0.5 + SIDE, words)


def length(fresh: Sequence[Stance], earlier: Sequence[Stance]) -> Check:
    """Whether people have come to like length as such."""
    name, limit = "labels/length", normal_quantile(RARE)
    if len(fresh) < FEWEST_FRESH or len(earlier) < FEWEST_EARLIER:
        return Check(name, True, 0.0, limit, "too few labels to compare tastes")
    unit = max(1.0, float(torch.tensor([float(j.longer) for j in earlier], dtype=torch.float64).std()))
    rises = [_rise(fresh, earlier, unit, beside_opinion) for beside_opinion in (False, True)]
    z = min((rise - TASTE) / error for rise, error in rises)
    words = (
        f"{unit:.0f} tokens more add {rises[1][0]:+.2f} to the log-odds of being chosen, compared with earlier labels, "
        "the ensemble's opinion being equal"
    )
    return Check(name, z <= limit, z, limit, words)


def _rise(fresh: Sequence[Stance], earlier: Sequence[Stance], unit: float, beside_opinion: bool) -> tuple[float, float]:
    """By how much the weight of length has risen, beside the old version's opinion or by itself, and its error."""
    weights, variances = [], []
    for labels in (fresh, earlier):
        features = [[j.longer / unit, j.old] if beside_opinion else [j.longer / unit] for j in labels]
        share_P = torch.tensor([j.share for j in labels], dtype=torch.float64)
        weights_F, covariance_FF = logistic(torch.tensor(features, dtype=torch.float64), share_P, ridge=1.0)
        weights.append(float(weights_F[0]))
        variances.append(float(covariance_FF[0, 0]))
    return weights[0] - weights[1], math.sqrt(sum(variances))


def _columns(opinions: Sequence[Stance], side: str) -> Columns:
    margins = [j.old if side == "old" else j.new for j in opinions]
    return torch.tensor(margins, dtype=torch.float64), torch.tensor([j.share for j in opinions], dtype=torch.float64)
