"""Which component of a reward gained without people granting it, worked out by hand."""

from __future__ import annotations

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
    assert "the rubric agrees that it has become worse" in verdict.sentence
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
