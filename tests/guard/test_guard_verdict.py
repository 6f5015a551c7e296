"""What each combination of signals, people and evidence is called, and how it is put."""

from __future__ import annotations

import json

import pytest

from holdfast.guard.alarm import Against, Evidence, Loss, Shortfall
from holdfast.guard.audit import AuditPair, AuditReport, audit
from holdfast.guard.baseline import Deviation
from holdfast.guard.course import Course, Step, Terms
from holdfast.guard.signal import Usual
from holdfast.guard.signals import SIGNALS
from holdfast.guard.suspicion import Suspicion, suspicion_of
from holdfast.guard.trust import TRUSTED, Trust
from holdfast.guard.verdict import Verdict, decide
from holdfast.statistics import Share

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
    ("suspicion", "evidence", "suspect"),
    [(CALM, QUIET, False), (LONGER, QUIET, True), (LONGER, LOUD, True), (CALM, LOUD, True)],
)
def test_without_answers_it_is_unaudited_and_says_so(suspicion: Suspicion, evidence: Evidence, suspect: bool) -> None:
    verdict = judged(suspicion, audit([]), evidence, left=0)
    assert (verdict.level, verdict.suspect, verdict.alarm) == ("unaudited", suspect, False)
    assert "no audit labels (none are left in the budget)" in verdict.sentence
    assert "no audit labels (none were given)" in judged(suspicion, audit([]), evidence, left=5).sentence
    assert "no audit labels (nobody answers in this run)" in judged(suspicion, audit([]), evidence, left=None).sentence
    assert verdict.trusted is not suspect


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


# ---- hacking or worse


def alarm_with(of: int, won: int, claimed: float, plain: tuple[int, int, float] | None = None) -> Evidence:
    pairs = Shortfall(2, of, won, of * claimed)
    beside = pairs if plain is None else Shortfall(2, plain[0], plain[1], plain[0] * plain[2])
    return Evidence(55.0, 0.1, 0.0, 0.0, 20.0, loss=Loss("anchor", pairs, beside))


@pytest.mark.parametrize(
    ("evidence", "level"),
    [
        (alarm_with(56, 15, 0.78), "hacking"),
        (alarm_with(56, 17, 0.44), "worse"),  # 30% of 56: people and reward agree about the direction
        (alarm_with(300, 60, 0.44), "worse"),  # however far apart they are
        (alarm_with(56, 17, 0.5), "hacking"),  # z = (17 - 28) / sqrt(56 / 4) = -2.9
        (alarm_with(24, 9, 0.52), "worse"),  # z = (9 - 12.48) / sqrt(24 * 0.52 * 0.48) = -1.42, which may be chance
        (alarm_with(24, 8, 0.52), "hacking"),  # z = -1.83, beyond the 1.645 of one side at 5%
        # Pointed pairs are those with the highest claims, so the pairs as they come say what the ensemble thinks.
        (alarm_with(72, 25, 0.62, plain=(72, 30, 0.45)), "worse"),
        (alarm_with(72, 25, 0.62, plain=(72, 30, 0.55)), "hacking"),
    ],
)
def test_an_alarm_is_named_by_what_the_reward_claims(evidence: Evidence, level: str) -> None:
    verdict = judged(CALM, report(15, 56, 0.6), evidence)
    assert verdict.level == level
    assert verdict.alarm
    assert not verdict.trusted


def test_claims_that_are_not_granted_for_long_are_hacking_whatever_one_round_says() -> None:
    evidence = Evidence(0.5, 0.1, 0.0, 55.0, 20.0, Shortfall(2, 720, 340, 420), alarm_with(56, 17, 0.44).loss)
    assert judged(CALM, report(24, 48, 0.44), evidence).level == "hacking"


# ---- what cannot be judged

STEP = Step(kl=2.0, moved=0.1, unfinished=0.2)
UNTRUSTED = Trust({"anna": ("answered 40 of 40 pairs with a tie",)}, 0.9)


def course(*steps: Step, **more: object) -> Course:
    return Course(steps, watched=True, **more)  # type: ignore[arg-type]


def seen(of: Course, trust: Trust = TRUSTED, people: AuditReport | None = None, evidence: Evidence = QUIET) -> Verdict:
    people = report(30, 48, 0.6) if people is None else people
    return decide(CALM, people, evidence, 100, "people", of, trust)


def test_who_cannot_be_trusted_is_told_with_what_was_found() -> None:
    verdict = seen(course(STEP), UNTRUSTED)
    assert verdict.level == "unreliable"
    assert verdict.sentence.startswith("anna answered 40 of 40 pairs with a tie; so the audit tells nothing: look at")
    assert seen(course(STEP), Trust(UNTRUSTED.findings, 0.4)).level == "healthy"


def test_answers_that_cannot_be_trusted_clear_nothing_and_hide_no_alarm() -> None:
    people = report(50, 72, 0.7)
    assert decide(LONGER, people, QUIET, 100, "people", course(STEP)).evidence["cleared"] is True
    verdict = decide(LONGER, people, QUIET, 100, "people", course(STEP), UNTRUSTED)
    assert (verdict.level, verdict.evidence["cleared"], verdict.suspect) == ("unreliable", False, True)
    assert seen(course(STEP), UNTRUSTED, report(15, 56, 0.78), LOUD).level == "hacking"


@pytest.mark.parametrize(
    ("of", "level", "words"),
    [
        (course(STEP), "healthy", ""),
        (
            course(Step(0.004, 0.1, 0.2)),
            "unmoved",
            "(KL to the reference 0.004 nats an answer in 1 step): raise ppo.lr",
        ),
        # Of 400 pairs 54% are 49% to 59%; of 2,000 58% are 56% to 60%, and 62% are more.
        (course(STEP, fit=Share(0.54, 400)), "unmoved", "at chance on its own training pairs (right on 54% of 400"),
        (course(STEP, fit=Share(0.62, 2000)), "healthy", ""),
        (course(STEP, fit=Share(0.3, 20)), "healthy", ""),
        (course(STEP, Step(2.0, 3.0, 0.2)), "healthy", "one step moved the policy by 3.00 nats: lower ppo.lr"),
        # A quarter of a budget of 16 nats is 4, and of one of 8 nats 2.
        (course(STEP, Step(2.0, 3.0, 0.2), terms=Terms(budget=16.0)), "healthy", ""),
        (
            course(STEP, Step(2.0, 3.0, 0.2), terms=Terms("kl.budget_start", budget=8.0)),
            "healthy",
            "one step moved the policy by 3.00 nats: lower kl.budget_start",
        ),
        (
            course(STEP, fit=Share(0.54, 400), terms=Terms(fit_rate=1e-5)),
            "unmoved",
            "look at the labels, or raise reward.lr above 1e-5",
        ),
        (course(Step(2.0, 0.1, 1.0)), "watch", "no answer ends within rollout.max_new_tokens: raise it"),
        (course(Step(2.0, 0.1, 1.0), terms=Terms(ends=False)), "healthy", ""),
        (course(), "unaudited", "every step of the round was dropped"),
    ],
)
def test_settings_that_are_far_out_are_told_in_words(of: Course, level: str, words: str) -> None:
    verdict = seen(of)
    assert verdict.level == level
    assert words in verdict.sentence
    assert bool(verdict.evidence["advice"]) == bool(words)
    assert verdict.trusted, "readings and anchor go on as they would"


def test_a_reward_at_chance_matters_not_where_people_like_the_policy_better_than_the_reference() -> None:
    liked = report(40, 48, 0.6, "reference")
    assert seen(course(STEP, fit=Share(0.54, 400)), people=liked).level == "healthy"


def test_an_alarm_about_a_policy_that_never_moved_is_chance() -> None:
    still, moved = Step(0.001, 0.0, 0.2), report(15, 56, 0.78)
    assert seen(course(still, good_kl=0.0), people=moved, evidence=LOUD).level == "unmoved"
    # One that has come back to the reference from a better policy is another matter.
    assert seen(course(still, good_kl=3.0), people=moved, evidence=LOUD).level == "hacking"


def test_four_answers_that_agree_are_too_few() -> None:
    verdict = seen(course(STEP), people=report(4, 4, 0.6))
    assert verdict.level == "unaudited"
    assert verdict.sentence.startswith("4 audit labels in all, too few to tell")
    assert seen(course(STEP), people=report(5, 5, 0.6)).level == "healthy"
