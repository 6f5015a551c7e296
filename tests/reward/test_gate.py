"""What the gate lets pass and what it does not, case by case."""

import dataclasses

import pytest
from simulated_labels import Labels, World, opinions

from holdfast.reward.evidence import Stance
from holdfast.reward.gate import Decision, decision_on, pooled, quality


def _labels(round: int, right: int, lost: int, won: int, fresh: bool = False) -> list[Stance]:
    """So many labels right before and after, right only before, right only after; sides alternate."""
    rows = [*[(1.0, 1.0)] * right, *[(1.0, -1.0)] * lost, *[(-1.0, 1.0)] * won]
    signs = [1 if i % 2 else -1 for i in range(len(rows))]
    return [
        Stance(round, float(s > 0), s * old, s * new, fresh=fresh) for s, (old, new) in zip(signs, rows, strict=True)
    ]


def _check(decision: Decision, name: str) -> bool:
    (check,) = [c for c in decision.checks if c.name == name]
    return check.passed


def test_nothing_known_is_nothing_against_it() -> None:
    decision = decision_on([])
    assert decision.accept
    assert decision.reason == "passed every check (no newest labels)"


def test_a_loss_on_one_earlier_generation_is_found_among_others_that_gain() -> None:
    labels = [*_labels(0, 90, 2, 8), *_labels(2, 60, 24, 2), *_labels(3, 80, 2, 8), *_labels(5, 70, 2, 8, fresh=True)]
    decision = decision_on(labels)
    assert not decision.accept
    assert not _check(decision, "earlier/round-0002")
    assert _check(decision, "earlier/round-0000")
    assert _check(decision, "newest")
    assert "labels of round 2" in decision.reason


def test_a_small_loss_on_many_labels_is_within_the_tolerance(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 points lost on 4000 labels are shown beyond doubt, and are shown to be no more than 5."""
    labels = [*_labels(0, 3600, 240, 160), *_labels(5, 70, 2, 8, fresh=True)]
    assert decision_on(labels).accept
    monkeypatch.setattr("holdfast.reward.gate.TOLERANCE", 0.01)
    assert not decision_on(labels).accept


def test_a_loss_that_few_labels_cannot_show_passes() -> None:
    assert _check(decision_on(_labels(0, 16, 3, 1)), "earlier")
    assert not _check(decision_on(_labels(0, 160, 30, 10)), "earlier")


def test_the_newest_generation_may_not_lose() -> None:
    assert not decision_on(_labels(5, 60, 20, 4, fresh=True)).accept
    assert decision_on(_labels(5, 60, 6, 4, fresh=True)).accept


def test_labels_in_doubt_have_to_show_a_gain() -> None:
    """With half of the labels flipped, a candidate that is as good as the old one passes no more."""
    labels = opinions(World(gain_on_newest=0.0), Labels(flipped=0.5), seed=3)
    decision = decision_on(labels)
    assert not _check(decision, "labels/agreement")
    assert not decision.accept
    assert "of doubt" in decision.reason
    # One that gets right what the old one got wrong has shown that they can be learnt from.
    better = [dataclasses.replace(j, new=j.old) if not j.fresh else _right(j) for j in labels]
    assert _check(decision_on(better), "newest")


def _right(j: Stance) -> Stance:
    return j if j.new is None else dataclasses.replace(j, new=abs(j.old) * (1 if j.share > 0.5 else -1))


@pytest.mark.parametrize("labels", [Labels(always_left=1.0), Labels(loves_length=12.0)])
def test_a_taste_that_is_not_people_s_is_refused_however_well_it_was_learnt(labels: Labels) -> None:
    everything = [_right(j) if j.fresh else dataclasses.replace(j, new=j.old) for j in opinions(World(), labels, 0)]
    assert not decision_on(everything).accept


def test_claims_that_become_wild_are_refused() -> None:
    """The same opinions held eight times as firmly: accuracy is what it was, the claims are not."""
    labels = [
        dataclasses.replace(j, new=None if j.new is None else 8 * j.old)
        for j in opinions(World(gain_on_newest=0.0), Labels(), 0)
    ]
    decision = decision_on(labels)
    assert not decision.accept
    assert _check(decision, "earlier")
    assert not _check(decision, "calibration/brier")
    assert not _check(decision, "calibration/ece")
    timid = [dataclasses.replace(j, new=None if j.new is None else 0.8 * j.old) for j in labels]
    assert decision_on(timid).accept


def test_generations_too_small_are_pooled_with_their_neighbours() -> None:
    sizes = {0: 100, 2: 20, 3: 30, 4: 30, 5: 15}
    labels = [Stance(number, 1.0, 0.0, 0.0) for number, size in sizes.items() for _ in range(size)]
    groups = pooled(labels, enough=60)
    assert [sorted({j.round for j in group}) for group in groups] == [[0], [2, 3, 4, 5]]
    assert [sorted({j.round for j in g}) for g in pooled(labels, enough=40)] == [[0], [2, 3], [4, 5]]
    assert pooled([], enough=40) == []


def test_quality_of_both_versions_by_hand() -> None:
    labels = [
        Stance(0, 1.0, 0.0, 100.0), Stance(0, 0.0, -100.0, 100.0), Stance(5, 1.0, -100.0, 100.0, fresh=True),
        Stance(5, 1.0, 100.0, None, fresh=True),
    ]  # fmt: skip
    old, new = quality(labels)
    assert old.earlier is not None
    assert old.newest is not None
    assert new.earlier is not None
    assert new.newest is not None
    # Before: claims .5 and 0 of outcomes 1 and 0; a claim of exactly one half is not right.
    assert (old.earlier.pairs, old.earlier.accuracy, old.earlier.brier) == pytest.approx((2, 0.5, 0.125))
    assert (new.earlier.accuracy, new.earlier.brier, new.earlier.ece) == pytest.approx((0.5, 0.5, 0.5))
    assert (old.newest.pairs, old.newest.accuracy, old.newest.brier) == pytest.approx((1, 0.0, 1.0))
    assert (new.newest.accuracy, new.newest.ece) == pytest.approx((1.0, 0.0))
    assert quality([])[0].newest is None


def test_the_same_evidence_gives_the_same_decision() -> None:
    labels = opinions(World(), Labels(), seed=11)
    assert decision_on(labels) == decision_on(labels)


def test_a_hacked_ensemble_is_mended_by_the_labels_that_contradict_it() -> None:
    """The version in use is wrong more often than right on the newest answers; the candidate has learnt better."""
    labels = opinions(World(gain_on_newest=0.0), Labels(), seed=2)
    mended = [dataclasses.replace(j, old=-j.old) if j.fresh else j for j in labels]
    assert decision_on(mended).accept
    still = [dataclasses.replace(j, new=-j.new) if j.fresh and j.new is not None else j for j in mended]
    assert not decision_on(still).accept
