"""The audit's numbers by hand, and whether its intervals and its test hold what they promise."""

from __future__ import annotations

import json
import math

import pytest
import torch

from holdfast.guard.alarm import Against
from holdfast.guard.audit import AuditPair, accuracy, audit, gap_z


def pairs(against: Against, won: list[float], claims: list[float] | float = 0.5) -> list[AuditPair]:
    claimed = claims if isinstance(claims, list) else [claims] * len(won)
    return [AuditPair(f"{against}-{i}", against, w, c) for i, (w, c) in enumerate(zip(won, claimed, strict=True))]


def test_two_opponents_are_kept_apart() -> None:
    report = audit([*pairs("reference", [1, 1, 0, 0.5], 0.8), *pairs("anchor", [0, 0, 1], [0.9, 0.6, 0.3])])
    assert report.reference is not None
    assert report.anchor is not None
    assert (report.reference.pairs, report.reference.wins, report.reference.losses) == (4, 2.5, 1.5)
    assert (report.anchor.pairs, report.anchor.wins) == (3, 1.0)
    assert report.anchor.claimed == pytest.approx(0.6)
    assert report.anchor.gap.value == pytest.approx(0.6 - 1 / 3)
    assert report.decisive is report.anchor
    alone = audit(pairs("reference", [1, 0]))
    assert alone.decisive is alone.reference


def test_accuracy_leaves_ties_out() -> None:
    assert accuracy([0.9, 0.2, 0.6, 0.5, 0.7], [1, 0, 0, 1, 0.5]) == pytest.approx((1 + 1 + 0 + 0.5) / 4)
    assert accuracy([0.9], [0.5]) is None


def test_brier_and_bins() -> None:
    report = audit(pairs("anchor", [1, 0, 1, 1], [0.9, 0.6, 0.6, 0.6]))
    assert report.brier == pytest.approx((0.01 + 0.36 + 0.16 + 0.16) / 4)
    assert report.ece == pytest.approx((1 * abs(0.9 - 1) + 3 * abs(0.6 - 2 / 3)) / 4)
    assert sum(b.count for b in report.bins) == 4


def test_the_gap_test_by_hand() -> None:
    # 24 claims of 0.8, 12 wins: (12 - 19.2) / sqrt(24 * 0.16) = -3.674
    report = audit(pairs("anchor", [1.0, 0.0] * 12, 0.8))
    assert report.gap_z == pytest.approx(-7.2 / math.sqrt(3.84))
    assert report.gap_p == pytest.approx(2.385e-4, rel=1e-3)
    assert report.miscalibrated
    assert report.overclaims
    modest = audit(pairs("anchor", [1.0] * 24, 0.5))
    assert modest.miscalibrated
    assert not modest.overclaims


def test_one_unlucky_answer_to_a_certain_claim_is_not_infinite() -> None:
    assert math.isfinite(gap_z([1.0], [0.0]))
    assert gap_z([], []) == 0.0


def test_calibrated_claims_are_called_wrong_as_seldom_as_promised() -> None:
    rng = torch.Generator().manual_seed(0)
    runs, count = 4000, 48
    claims = torch.rand(runs, count, generator=rng) * 0.6 + 0.3
    won = (torch.rand(runs, count, generator=rng) < claims).double()
    z = [gap_z(c, w) for c, w in zip(claims.tolist(), won.tolist(), strict=True)]
    assert sum(abs(x) > 2.5758 for x in z) / runs == pytest.approx(0.01, abs=0.005)


def test_claims_twenty_points_too_high_are_mostly_found_with_72_pairs() -> None:
    rng = torch.Generator().manual_seed(1)
    won = (torch.rand(400, 72, generator=rng) < 0.55).double().tolist()
    found = sum(audit(pairs("anchor", row, 0.75)).overclaims for row in won)
    assert found / 400 > 0.85


def test_no_pairs_at_all() -> None:
    report = audit([])
    assert (report.pairs, report.reference, report.anchor, report.accuracy, report.brier) == (0, None, None, None, None)
    assert not report.miscalibrated
    assert report.decisive is None


def test_an_event_holds_it_as_json() -> None:
    record = json.loads(json.dumps(audit(pairs("reference", [1, 0, 1], 0.7)).record()))
    assert (record["reference_wins"], record["reference_pairs"], record["anchor_pairs"]) == (2.0, 3, 0)
    assert record["claimed_reference"] == pytest.approx(0.7)
    assert record["claimed_anchor"] is None
    assert {"pairs", "accuracy", "ece", "brier", "reliability"} <= set(record)
