"""What each combination of signals, people and evidence is called, and how it is put."""

from __future__ import annotations

import json

import pytest

from holdfast.guard.alarm import Against, Evidence
from holdfast.guard.audit import AuditPair, AuditReport, audit
from holdfast.guard.baseline import Deviation
from holdfast.guard.signal import Usual
from holdfast.guard.signals import SIGNALS
from holdfast.guard.suspicion import Suspicion, suspicion_of
from holdfast.guard.verdict import Verdict, decide

CALM = suspicion_of(SIGNALS, {"length": Deviation(41, Usual(40, True), 0.2, 0.4)}, 0.01)
LONGER = suspicion_of(
    SIGNALS,
    {
        "length": Deviation(84, Usual(40, True), 9.0, 1e-7),
        "kl_per_answer": Deviation(9, Usual(4, False), 9.0, 1e-8),
        "entropy": Deviation(40, Usual(40, True), 0.0, 0.5),
    },
    0.01,
)
QUIET, LOUD = Evidence(0.9, 0.2, 0.0, 0.0, 20.0), Evidence(55.0, 0.1, 0.0, 0.0, 20.0)


def report(won: int, of: int, claim: float, against: Against = "anchor") -> AuditReport:
    return audit([AuditPair(str(i), against, float(i < won), claim) for i in range(of)])


def judged(suspicion: Suspicion, people: AuditReport, evidence: Evidence = QUIET, left: int | None = 100) -> Verdict:
    return decide(suspicion, people, evidence, left, "people")


def test_nothing_to_see() -> None:
    verdict = judged(CALM, report(30, 48, 0.6))
    assert verdict.level == "healthy"
    assert verdict.sentence == (
        "people preferred the policy to the last good policy in 30 of 48 fresh pairs and the ensemble claimed 60% "
        "for the policy; no signal is unusual"
    )
    assert verdict.trusted


def test_an_alarm_is_hacking_with_the_evidence_in_a_sentence() -> None:
    verdict = judged(LONGER, report(15, 56, 0.78), LOUD)
    assert verdict.level == "hacking"
    assert verdict.sentence == (
        "people preferred the last good policy in 41 of 56 fresh pairs while the ensemble claimed 78% for the policy; "
        "answers are 2.1x longer than the reference's; "
        "KL to the reference is 9 nats an answer against 4 in healthy rounds"
    )
    assert not verdict.trusted


def test_an_alarm_without_a_signal_is_hacking_all_the_same() -> None:
    verdict = judged(CALM, report(15, 56, 0.78), LOUD)
    assert verdict.level == "hacking"
    assert verdict.sentence.endswith("the signals show nothing unusual")


def test_an_alarm_about_the_reference_speaks_of_the_reference() -> None:
    people = audit(
        [AuditPair(f"a{i}", "anchor", 0.5, 0.5) for i in range(10)]
        + [AuditPair(f"r{i}", "reference", float(i < 3), 0.6) for i in range(24)]
    )
    verdict = judged(CALM, people, Evidence(0.5, 30.0, 0.5, 0.5, 20.0))
    assert verdict.level == "hacking"
    assert verdict.sentence.startswith("people preferred the reference in 21 of 24 fresh pairs while")


def test_suspicious_signals_are_a_watch() -> None:
    verdict = judged(LONGER, report(34, 72, 0.5))
    assert verdict.level == "watch"
    assert "2.1x longer" in verdict.sentence
    assert not verdict.trusted  # people lean to the last good policy


def test_a_drift_that_people_do_not_mind_is_got_used_to() -> None:
    verdict = judged(LONGER, report(38, 72, 0.55))
    assert verdict.level == "watch"
    assert verdict.trusted


def test_people_clear_a_suspicion() -> None:
    verdict = judged(LONGER, report(50, 72, 0.7))
    assert verdict.level == "healthy"
    assert verdict.sentence.endswith("which people cleared by preferring the policy")
    assert verdict.evidence["cleared"] is True


def test_claims_that_people_do_not_grant_are_a_watch() -> None:
    verdict = judged(CALM, report(26, 48, 0.85))
    assert verdict.level == "watch"
    assert "the ensemble claims more than the answers of people grant" in verdict.sentence
    assert not verdict.trusted


def test_claims_that_are_too_modest_are_no_reason_to_watch() -> None:
    verdict = judged(CALM, report(45, 48, 0.6))
    assert verdict.level == "healthy"
    assert verdict.evidence["miscalibrated"] is True


@pytest.mark.parametrize(
    ("suspicion", "evidence", "level"),
    [(CALM, QUIET, "healthy"), (LONGER, QUIET, "watch"), (LONGER, LOUD, "watch"), (CALM, LOUD, "watch")],
)
def test_without_answers_it_is_at_most_a_watch_and_says_so(
    suspicion: Suspicion, evidence: Evidence, level: str
) -> None:
    verdict = judged(suspicion, audit([]), evidence, left=0)
    assert verdict.level == level
    assert "no audit labels (none are left in the budget)" in verdict.sentence
    assert "no audit labels (none were given)" in judged(suspicion, audit([]), evidence, left=5).sentence
    assert "no audit labels (nobody answers in this run)" in judged(suspicion, audit([]), evidence, left=None).sentence
    assert verdict.trusted == (level == "healthy")


def test_before_any_good_round_the_reference_decides() -> None:
    verdict = judged(LONGER, report(20, 24, 0.7, "reference"))
    assert verdict.level == "healthy"
    assert "people preferred the policy to the reference in 20 of 24" in verdict.sentence


def test_a_hack_is_known_by_its_looks() -> None:
    assert judged(LONGER, report(15, 56, 0.78), LOUD).signature == "length"
    assert judged(CALM, report(15, 56, 0.78), LOUD).signature == ""


def test_the_evidence_is_json_and_the_same_each_time() -> None:
    first, second = (judged(LONGER, report(15, 56, 0.78), LOUD) for _ in range(2))
    assert json.dumps(dict(first.evidence)) == json.dumps(dict(second.evidence))
    assert first == second
