"""What the guard says in a terminal."""

from __future__ import annotations

import pytest

from holdfast.guard.lines import Rate, event_line, goal, rate_of, round_line, undone

AUDIT = {
    "reference_pairs": 24,
    "reference_wins": 16.5,
    "reference_rate": 0.6875,
    "reference_low": 0.48,
    "reference_high": 0.83,
    "claimed_reference": 0.81,
    "anchor_pairs": 24,
    "anchor_rate": 0.583,
    "claimed_anchor": 0.55,
}


def test_a_round_is_one_line() -> None:
    assert round_line(3, AUDIT, {"level": "healthy", "sentence": "no signal is unusual"}) == (
        "round 3  healthy   people 69% vs reference (24 pairs), 58% vs last good (24); ensemble claims 81% and 55%"
    )


def test_lines_of_many_rounds_stand_under_each_other() -> None:
    lines = [round_line(n, AUDIT, {"level": level}) for n, level in ((3, "healthy"), (12, "watch"), (99, "hacking"))]
    assert len({line.index("people") for line in lines}) == 1


def test_a_watch_gives_its_reason() -> None:
    first, second = round_line(3, AUDIT, {"level": "watch", "sentence": "answers are\n2.1x longer"}).splitlines()
    assert first.startswith("round 3  watch ")
    assert second.strip() == "answers are 2.1x longer"


@pytest.mark.parametrize(
    ("audit", "expected"),
    [
        ({}, "round 1  healthy   no audit"),
        ({"labels_left": 0}, "round 1  healthy   no audit: no labels are left"),
        ({"labels_left": None}, "round 1  healthy   no audit: nobody answers"),
        ({"reference_pairs": 0, "reference_rate": None}, "round 1  healthy   no audit"),
        ({"reference_wins": 1, "reference_pairs": 1}, "round 1  healthy   people 100% vs reference (1 pair)"),
        ({"anchor_rate": 0.5}, "round 1  healthy   people 50% vs last good"),
        ({"reference_rate": "much", "anchor_rate": True}, "round 1  healthy   no audit"),
        ({"reference_rate": float("nan"), "claimed_reference": 0.5}, "round 1  healthy   no audit"),
    ],
)
def test_what_is_not_known_is_left_out(audit: dict[str, object], expected: str) -> None:
    assert round_line(1, audit, {"level": "healthy"}) == expected


def test_a_round_without_a_verdict_still_has_its_line() -> None:
    assert round_line(1, {}, {}) == "round 1  no verdict no audit"


def test_an_interval_may_stand_with_its_rate_or_beside_it() -> None:
    nested = {"reference_pairs": 24, "reference_rate": {"value": 0.6875, "low": 0.48, "high": 0.83}}
    assert rate_of(nested, "reference") == Rate(0.6875, 0.48, 0.83, 24, None)
    assert rate_of(AUDIT, "reference") == Rate(0.6875, 0.48, 0.83, 24, 0.81)
    assert rate_of(AUDIT, "anchor") == Rate(0.583, None, None, 24, 0.55)


def test_a_claim_is_too_high_only_above_the_whole_interval() -> None:
    assert not Rate(0.6, 0.5, 0.7, 24, 0.7).overclaimed
    assert Rate(0.6, 0.5, 0.7, 24, 0.71).overclaimed
    assert not Rate(0.6, None, None, 24, 0.99).overclaimed
    assert not Rate(0.6, 0.5, 0.7, 24, None).overclaimed


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        (
            "rollback",
            {"to": "round-0003", "step_from": 40, "step_to": 30, "kl_undone": 2.134, "reason": "people preferred it"},
            "round 4  ROLLED BACK to the policy of round 3, 10 steps and 2.13 nats undone: people preferred it",
        ),
        ("rollback", {}, "round 4  ROLLED BACK to the last good checkpoint"),
        ("stopped", {"reason": "3 rollbacks"}, "round 4  STOPPED at the last good policy: 3 rollbacks"),
        (
            "refresh",
            {"accepted": False, "gate_reason": "worse on round 2"},
            "round 4  refresh refused by the gate: worse on round 2",
        ),
        (
            "refresh",
            {"accepted": False, "gate_reason": "worse on round 2", "version": 5, "in_use": 6, "joined": 1},
            "round 4  refresh refused by the gate, and its member 2 let in (v6): worse on round 2",
        ),
        ("refresh", {"accepted": True, "version": 2}, None),
        ("refresh", {"version": 2}, None),
        (
            "action",
            {"rung": "tighten", "words": "held closer", "before": {"beta": 0.05}, "after": {"beta": 0.075}},
            "         held closer (beta 0.05 to 0.075)",
        ),
        (
            "action",
            {
                "rung": "tighten",
                "words": "held closer",
                "before": {"beta": 0.05},
                "after": {"beta": 0.05},
                "changed": False,
            },
            "         held closer (nothing changed)",
        ),
        ("action", {"rung": "refresh", "before": None, "after": 3}, "         refresh the ensemble"),
        (
            "advice",
            {"rung": "tighten", "reason": "why"},
            "round 4  advice: would hold the policy closer to the reference",
        ),
        (
            "advice",
            {"rung": "rollback", "reason": "why"},
            "round 4  advice: would roll back to the last good policy: why",
        ),
        ("round_finished", {"kl": 1.0}, None),
        ("labels_collected", {}, None),
    ],
)
def test_what_is_said_of_an_event(kind: str, fields: dict[str, object], expected: str | None) -> None:
    assert event_line(kind, 4, fields) == expected


def test_where_a_rollback_goes() -> None:
    assert goal("round-0012") == "the policy of round 12"
    assert goal("round-0000") == "the reference"
    assert goal("round-0012-step-0004") == "round-0012-step-0004"
    assert goal(None) == "the last good checkpoint"


def test_what_was_undone_as_far_as_known() -> None:
    assert undone({"step_from": 31, "step_to": 30}) == "1 step undone"
    assert undone({"kl_undone": 0.5}) == "0.5 nats undone"
    assert undone({"step_from": 31}) == ""


def test_a_reason_of_any_length_stays_a_line() -> None:
    line = event_line("stopped", 4, {"reason": "so\nmany words " * 10_000})
    assert line is not None
    assert len(line) < 700
    assert "\n" not in line
