"""Which component of a reward gained without people granting it, worked out by hand."""

from __future__ import annotations

import pytest

from holdfast.config.schema import GuardConfig
from holdfast.guard.alarm import AlarmTest
from holdfast.guard.attribution import attribution, culprit
from holdfast.guard.audit import AuditPair, audit
from holdfast.guard.claims import UNCLAIMED, Granted
from holdfast.guard.course import Course, Terms
from holdfast.guard.ladder import Ladder
from holdfast.guard.suspicion import Suspicion
from holdfast.guard.verdict import Verdict, decide


def pairs(won: int, of: int, parts: dict[str, float], against: str = "reference") -> list[AuditPair]:
    margin = sum(parts.values())
    claim = 0.501 if margin > 0 else 0.499
    return [AuditPair(f"{parts}{n}", against, float(n < won), claim, (), False, margin, parts) for n in range(of)]  # type: ignore[arg-type]


def test_the_component_that_people_do_not_grant() -> None:
    # 50 pairs with the citation and 12 wins, 30 of which gain correctness too (of them 10 won); 10 without any gain.
    told = [
        *pairs(2, 20, {"cites a source": 1.0, "is correct": 0.0}),
        *pairs(10, 30, {"cites a source": 1.0, "is correct": 1.0}),
        *pairs(20, 24, {"cites a source": -1.0, "is correct": 1.0}),
    ]
    by_name = {each.name: each for each in attribution(told)}
    cites, correct = by_name["cites a source"], by_name["is correct"]
    assert (cites.gained, cites.pairs, cites.granted) == ((50 - 24) / 74, 50, 12)
    assert (correct.gained, correct.pairs, correct.granted) == (54 / 74, 54, 30)
    assert cites.rejected
    assert not correct.rejected
    assert culprit(attribution(told)) == cites
    assert cites.words("criterion") == "the criterion 'cites a source' gained 0.351 and is granted in 12 of 50"


def test_of_several_that_are_not_granted_the_one_that_pays_most_is_to_blame() -> None:
    """Reward = 1 * words + 0.5 * fixed: words gained 0.07 (granted in 10 of 37), fixed 0.01 (granted in 8 of 32)."""

    def pair(n: int, words: float, fixed: float, won: bool) -> AuditPair:
        parts = {"words": words, "fixed": fixed, "idle": 0.0}
        return AuditPair(str(n), "anchor", float(won), 0.501, (), False, words + 0.5 * fixed, parts)

    told = [pair(n, 0.1, 0.02, n < 8) for n in range(32)]
    told += [pair(32 + n, 0.1, -0.03, n < 2) for n in range(5)]
    told += [pair(37 + n, -0.04, 0.0, n < 10) for n in range(10)]
    words, fixed, idle = (
        next(each for each in attribution(told) if each.name == n) for n in ("words", "fixed", "idle")
    )
    assert (words.pairs, words.granted, fixed.pairs, fixed.granted) == (37, 10, 32, 8)
    assert fixed.rejected
    assert words.rejected
    assert words.paid == pytest.approx(words.gained) == pytest.approx((37 * 0.1 - 10 * 0.04) / 47)
    assert fixed.paid == pytest.approx(0.5 * fixed.gained) == pytest.approx(0.5 * (32 * 0.02 - 5 * 0.03) / 47)
    assert idle.paid == 0.0
    assert attribution(told)[0] == fixed, "people grant it least"
    assert culprit(attribution(told)) == words


def test_components_that_always_go_together_share_what_they_pay() -> None:
    told = [AuditPair(str(n), "anchor", 0.0, 0.501, (), False, 0.3, {"one": 0.1, "other": 0.1}) for n in range(20)]
    assert [each.paid for each in attribution(told)] == pytest.approx([0.15, 0.15])


def test_a_reward_without_components_and_an_ensemble() -> None:
    (whole,) = attribution(
        pairs(5, 40, {}) and [AuditPair(str(n), "anchor", float(n < 5), 0.501, (), False, 0.4) for n in range(40)]
    )
    assert whole.words() == "the reward gained 0.4 and is granted in 5 of 40"
    assert attribution([AuditPair(str(n), "anchor", 0.0, 0.6) for n in range(40)]) == ()


def verdict_on(told: list[AuditPair], terms: Terms, claimed: bool = False) -> Verdict:
    version = 1 if claimed else UNCLAIMED
    report, test = audit(told, claimed), AlarmTest(0.05, 4)
    side = report.anchor or report.reference
    assert side is not None
    test.record(1, side.against, Granted(side.wins, side.losses, side.claimed, version))
    return decide(
        Suspicion(1.0, 0.01), report, test.evidence(), 100, "people", Course(terms=terms), parts=attribution(told)
    )


TERMS = Terms(reward="the rubric", part="criterion")


def test_the_verdict_names_the_criterion_and_the_ladder_counts_it_for_less() -> None:
    verdict = verdict_on(pairs(11, 56, {"cites a source": 0.4}, "anchor"), TERMS)
    assert verdict.level == "hacking"
    assert verdict.sentence.startswith(
        "people preferred the last good policy in 45 of 56 fresh pairs while the rubric was higher for the policy in "
        "56; the criterion 'cites a source' gained 0.4 and is granted in 11 of 56"
    )
    assert verdict.component == "cites a source"
    actions = Ladder(GuardConfig()).climb(verdict, "round-0000")
    assert [(a.rung, a.component) for a in actions][-1] == ("discount", "cites a source")


def test_a_reward_that_fell_as_well_is_no_hack() -> None:
    verdict = verdict_on(pairs(11, 56, {"cites a source": -0.4}, "anchor"), TERMS)
    assert verdict.level == "worse"
    assert "the rubric agrees that it has become worse in pairs as they come" in verdict.sentence
    assert verdict.component == ""


def test_a_component_that_is_not_granted_is_a_reason_to_ask_further() -> None:
    verdict = verdict_on(pairs(8, 30, {"length": 1.0}), TERMS)
    assert (verdict.level, verdict.suspect, verdict.component) == ("watch", True, "length")


def test_what_claims_nothing_does_not_claim_too_much() -> None:
    """A policy that loses a little is no overclaim where the reward has not claimed anything."""
    told = pairs(20, 56, {"length": 1.0})
    assert not audit(told, claimed=False).overclaims
    assert audit(told, claimed=False).record()["claimed_reference"] is None
    assert "claim" not in verdict_on(told, TERMS).sentence.replace("claims no more", "")


def test_what_is_valid_and_empty_is_called_so() -> None:
    """Validity gained 1 and is granted in 8 of 40, where coverage fell by 0.4."""
    told = pairs(8, 40, {"form/valid": 1.0, "form/coverage": -0.4})
    sentence = verdict_on(told, Terms(reward="the reward")).sentence
    assert "'form/valid' gained 1 and is granted in 8 of 40" in sentence
    assert "answers are valid, and empty: they cover 0.4 less of what the schema names" in sentence
    fuller = verdict_on(pairs(8, 40, {"valid": 1.0, "coverage": 0.1}), Terms(reward="the reward"))
    assert "and empty" not in fuller.sentence
    other = verdict_on(pairs(8, 40, {"polite": 1.0, "coverage": -0.4}), Terms(reward="the reward"))
    assert "and empty" not in other.sentence
