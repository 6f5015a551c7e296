"""The gate: whether a refreshed ensemble takes the place of the one in use.

    labels that members have not learnt from -> both versions' opinions -> checks -> decision

What is measured on. Held-out labels are few: about 15 a round. But a member never learns from its own fifth of the
labels, in any version, so that fifth is held out for it too: each label is put to one member that has not learnt from
it, before and after. With 3 members that is 3 labels in 5. Audit labels are among them like any others.

Who has to prove what. So few labels cannot prove that a version is no worse, nor that a good refresh, which gains a few
points of accuracy, is better. Therefore:

earlier    refused if *shown worse* (McNemar's exact test) and not *shown to be within the tolerance*; either proof is
           enough to pass. All earlier generations together, and each by itself; neighbours with too few labels count
           as one.
newest     two things are weighed, both in standard errors: what the candidate's opinions gain in step with the newest
           labels (`evidence.gain`, twice as sharp as accuracy on so few), and how far the labels themselves are in
           doubt (`labels/agreement`: they follow nobody's opinion as earlier ones do). Refused if the gain is less than
           the doubt, give or take 1.3 z(level); a gain that is shown at a tenth of the level passes in any case. Flips
           at random hide a gain but do not turn its sign, so good labels that contradict an ensemble gone wrong pass by
           their large gain, and of refreshes that lose a share of level / 10 at most does.
labels     position and length (see `labelcheck`) refuse by themselves: such labels teach a taste that is not people's,
           and a candidate that has learnt it does well on them.
calibration  the Brier score and the calibration error: refused if shown worse and not shown within a tolerance.

What it can see (tests/reward/test_gate_power.py is the simulation; 144 new labels that neither version has learnt from,
400 earlier ones): with members right on 68% of the newest labels a refresh that gains 2 points passes 19 times in 20,
and one that changes nothing 3 times in 4; of refreshes that lose 2 points on labels of which 25% are flipped 1 in 20
passes, at 40% 1 in 50. With members right on 58% of them, 1 in 10 does: opinions that say little cannot show that
labels say less. Against that only more labels help, so what was refused is tried again with those of the next round. A
loss of 6 points on all earlier generations is always found, one on 60 labels of a single generation only if it is
larger than about 15 points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from holdfast.algorithms.calibration import brier, ece
from holdfast.reward.evidence import (
    AccuracyChange,
    Check,
    Stance,
    accuracy_change,
    columns,
    ece_resampled,
    gain,
    mean_and_error,
    resamples,
)
from holdfast.reward.labelcheck import FEWEST_FRESH, NONE, check_labels
from holdfast.reward.repeats import Repeats
from holdfast.statistics import normal_quantile
from holdfast.text import counted

# Accuracy that may be lost on held-out labels of an earlier policy generation. Less cannot be told from chance on the
# few hundred labels that there are.
TOLERANCE = 0.05

# Error level of the gate's tests together: a good version that is refused costs a round, so it is not 1%.
LEVEL = 0.1

# Shares of the error level.
FOR_LABELS, FOR_EARLIER, FOR_EACH, FOR_BRIER, FOR_ECE = 0.5, 0.15, 0.1, 0.05, 0.05

# How far a gain may fall short of the doubt about the labels, in units of z(level); the share of the level at which a
# gain is beyond doubt.
SHORT, BEYOND_DOUBT = 1.3, 0.1

# Generations with fewer labels than this are pooled with their neighbours.
ENOUGH = 60

# Brier scores move less than accuracies: 70% and 75% right are about 0.20 and 0.18 for claims that are well calibrated.
BRIER_TOLERANCE = 0.02


@dataclass(frozen=True)
class Decision:
    """Whether the candidate is accepted, why in one sentence, and every check."""

    accept: bool
    reason: str
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True)
class Figures:
    """How right one version is on some labels."""

    pairs: int
    accuracy: float
    brier: float
    ece: float


@dataclass(frozen=True)
class Quality:
    """One version on the newest generation and on all earlier ones; None where there are no labels."""

    newest: Figures | None = None
    earlier: Figures | None = None


def decision_on(opinions: Sequence[Stance], repeats: Repeats = NONE) -> Decision:
    """Accept the candidate or not."""
    fresh, earlier = [j for j in opinions if j.fresh], [j for j in opinions if not j.fresh]
    labels = check_labels(fresh, earlier, FOR_LABELS * LEVEL, repeats)
    checks = [
        *labels,
        _no_loss("earlier", accuracy_change(earlier), "all earlier generations", FOR_EARLIER * LEVEL),
        *_each_generation(earlier),
        _newest(fresh, max(0.0, labels[0].value)),
        *_calibration(opinions),
    ]
    # Agreement is weighed against the gain on the newest labels; it refuses nothing by itself.
    failed = [check for check in checks if not check.passed and check is not labels[0]]
    if not failed:
        change = accuracy_change(fresh)
        loss = round(change.loss, 3)  # rounded first: next to nothing is no "-0.0%"
        newest = counted(change.pairs, "newest label")
        gain = f"{0.0 - loss:+.1%} accuracy on the {newest}" if fresh else "no newest labels"
        return Decision(True, f"passed every check ({gain})", tuple(checks))
    return Decision(False, "; ".join(check.words for check in failed), tuple(checks))


def quality(opinions: Sequence[Stance]) -> tuple[Quality, Quality]:
    """The version in use and the candidate, on the same labels."""
    fresh, earlier = [j for j in opinions if j.fresh], [j for j in opinions if not j.fresh]
    old, new = (Quality(_figures(fresh, side), _figures(earlier, side)) for side in (0, 1))
    return old, new


def pooled(opinions: Sequence[Stance], enough: int = ENOUGH) -> list[list[Stance]]:
    """Generations from the oldest to the newest, each with neighbours until there are enough labels."""
    groups: list[list[Stance]] = []
    for number in sorted({j.round for j in opinions}):
        generation = [j for j in opinions if j.round == number]
        if groups and len(groups[-1]) < enough:
            groups[-1] += generation
        else:
            groups.append(generation)
    if len(groups) > 1 and len(groups[-1]) < enough:
        last = groups.pop()
        groups[-1] += last
    return groups


def _no_loss(name: str, change: AccuracyChange, where: str, level: float) -> Check:
    """Passed unless shown worse, and also then if shown to be within the tolerance."""
    most = change.loss + normal_quantile(LEVEL) * change.error
    passed = change.worse >= level or most <= TOLERANCE
    words = f"{-change.loss:+.1%} accuracy on {where} ({counted(change.pairs, 'label')})"
    return Check(name, passed, change.loss, TOLERANCE, words)


def _each_generation(earlier: Sequence[Stance]) -> list[Check]:
    groups = pooled([j for j in earlier if j.new is not None and j.share != 0.5])
    if len(groups) < 2:
        return []
    checks = []
    for group in groups:
        first, last = group[0].round, max(j.round for j in group)
        where = f"labels of round {first}" if first == last else f"labels of rounds {first} to {last}"
        level = FOR_EACH * LEVEL / len(groups)
        checks.append(_no_loss(f"earlier/round-{first:04d}", accuracy_change(group), where, level))
    return checks


def _newest(fresh: Sequence[Stance], doubt: float) -> Check:
    """The gain on the newest labels against the doubt about them, in standard errors."""
    limit = -SHORT * normal_quantile(LEVEL)
    change, gain_and_error = accuracy_change(fresh), gain(fresh)
    if gain_and_error is None or change.pairs < FEWEST_FRESH:
        return Check("newest", True, 0.0, limit, f"too few new labels ({change.pairs}) to compare the versions on")
    gained = gain_and_error[0] / gain_and_error[1]
    passed = gained - doubt >= limit or gained >= normal_quantile(BEYOND_DOUBT * LEVEL)
    words = (
        f"{-change.loss:+.1%} accuracy on the newest labels ({change.pairs}), a gain of {gained:+.1f} standard errors "
        f"against {doubt:.1f} of doubt that they are as good as earlier ones"
    )
    return Check("newest", passed, gained - doubt, limit, words)


def _calibration(opinions: Sequence[Stance]) -> list[Check]:
    old_P, new_P, share_P = columns(opinions)
    if len(share_P) < 2:
        return []
    # How much worse the candidate's claims are, label by label.
    rise, error = mean_and_error((new_P - share_P).square() - (old_P - share_P).square())
    shown = rise > normal_quantile(FOR_BRIER * LEVEL) * error
    within = rise + normal_quantile(LEVEL) * error <= BRIER_TOLERANCE
    place_RP = resamples(len(share_P))
    rise_R = ece_resampled(new_P, share_P, place_RP) - ece_resampled(old_P, share_P, place_RP)
    levels = torch.tensor([FOR_ECE * LEVEL, 1.0 - LEVEL], dtype=torch.float64)
    low, high = rise_R.quantile(levels).tolist()
    before, after = ece(old_P, share_P), ece(new_P, share_P)
    return [
        Check(
            "calibration/brier", not shown or within, rise, BRIER_TOLERANCE,
            f"Brier score from {brier(old_P, share_P):.3f} to {brier(new_P, share_P):.3f}",
        ),
        Check(
            "calibration/ece", low <= 0 or high <= TOLERANCE, after - before, TOLERANCE,
            f"calibration error from {before:.3f} to {after:.3f}",
        ),
    ]  # fmt: skip


def _figures(opinions: Sequence[Stance], side: int) -> Figures | None:
    *claims, share_P = columns(opinions)
    clear_P = share_P != 0.5
    if not bool(clear_P.any()):
        return None
    claim_P = claims[side]
    right_P = (claim_P > 0.5) == (share_P > 0.5)
    return Figures(
        pairs=len(share_P),
        accuracy=float(right_P[clear_P].double().mean()),
        brier=brier(claim_P, share_P),
        ece=ece(claim_P, share_P),
    )
