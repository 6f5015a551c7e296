"""One registry of events, one page generated from it, and what is said of them in a terminal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from holdfast.errors import HoldfastError
from holdfast.events import KINDS, event_kind, event_line, event_sentence, events_markdown, round_line, weight_of
from holdfast.events.sentences import RUNGS, Rate, goal, rate_of
from holdfast.guard.ladder import Rung
from lone_events import fields_of

ROOT = Path(__file__).parents[1]
SOURCE, PAGE = ROOT / "src" / "holdfast", ROOT / "docs" / "reference" / "events.md"

NEEDED: dict[str, dict[str, object]] = {
    "action": {"words": "held closer"},
    "owner": {"by": "anna", "words": "paused the run"},
    "advice": {"rung": "stop"},
    "gate": {"before": {"newest": None}, "after": {"newest": None}},
}
AUDIT = {
    "labels": 48,
    "answered_by": "people",
    "reference_pairs": 24,
    "reference_wins": 16.5,
    "reference_rate": {"value": 0.6875, "low": 0.48, "high": 0.83},
    "claimed_reference": 0.81,
    "anchor_pairs": 24,
    "anchor_rate": {"value": 14 / 24, "low": 0.39, "high": 0.76},
    "claimed_anchor": 0.55,
}


# --- the registry -----------------------------------------------------------------------------------------------


def test_every_kind_is_filled_in_and_fits_one_line() -> None:
    for name, kind in KINDS.items():
        assert name == kind.name
        assert kind.meaning == kind.meaning.strip()
        assert not kind.fields.keys() & kind.optional.keys()
        assert not {*kind.fields, *kind.optional} & {"step", "round", "event", "time"}
        fields = fields_of(name, **NEEDED.get(name, {}))
        assert event_sentence(name, fields).endswith(".")
        assert weight_of(name, fields) in ("main", "minor", "alarm")
        event_line(name, 1, fields)


def test_an_unknown_kind_and_wrong_fields_are_refused_with_a_hint() -> None:
    event_kind("kl_limit").check({"kl": 3, "limit": 2.5})
    event_kind("rollback").check({"to": "round-0001", "step_from": 4, "step_to": 2, "reason": "", "by": "anna"})
    with pytest.raises(HoldfastError, match=r"no event 'rolback'.*did you mean rollback\?"):
        event_kind("rolback")
    with pytest.raises(HoldfastError, match=r"add it to holdfast/events"):
        event_kind("zzz")
    with pytest.raises(HoldfastError, match=r"'kl_limit' has no field 'limits'; did you mean limit\?"):
        event_kind("kl_limit").check({"kl": 3.0, "limits": 2.5})
    with pytest.raises(HoldfastError, match=r"'kl_limit' lacks its field 'limit'"):
        event_kind("kl_limit").check({"kl": 3.0})
    with pytest.raises(HoldfastError, match=r"'kl_limit' holds 'much' in its field 'kl'"):
        event_kind("kl_limit").check({"kl": "much", "limit": 2.5})


def test_every_rung_of_the_ladder_has_its_words() -> None:
    assert RUNGS.keys() == set(get_args(Rung))


def test_every_kind_is_written_by_something() -> None:
    """An event that nobody writes is a word that nobody says."""
    sources = [path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py") if path.parent.name != "events"]
    assert [name for name in KINDS if not any(re.search(rf'vent\(\s*(\d+, \d+, )?"{name}"', s) for s in sources)] == []


def test_the_reference_page_is_the_generated_one() -> None:
    assert PAGE.read_text(encoding="utf-8") == events_markdown(), (
        "docs/reference/events.md is out of date: write events_markdown() to it."
    )


# --- a terminal -------------------------------------------------------------------------------------------------


def test_a_round_is_one_line() -> None:
    assert round_line(3, AUDIT, {"level": "healthy", "sentence": "no signal is unusual"}) == (
        "round 3  healthy    people: 16.5 of 24 pairs (49% to 84%) vs reference, 14 of 24 pairs (39% to 76%) vs last "
        "good; ensemble claims 81% and 55%"
    )


def test_lines_of_many_rounds_stand_under_each_other() -> None:
    lines = [
        round_line(n, AUDIT, {"level": level, "sentence": ""})
        for n, level in ((3, "healthy"), (12, "watch"), (99, "hacking"), (7, "unreliable"))
    ]
    assert len({line.splitlines()[0].index("people") for line in lines}) == 1


def test_a_watch_gives_its_reason() -> None:
    first, second = round_line(3, AUDIT, {"level": "watch", "sentence": "answers are\n2.1x longer"}).splitlines()
    assert first.startswith("round 3  watch ")
    assert second.strip() == "answers are 2.1x longer"


@pytest.mark.parametrize(
    ("audit", "expected"),
    [
        ({"labels_left": 3}, "round 1  healthy    no audit"),
        (
            {"labels_left": 0},
            "round 1  healthy    no audit: no labels are left",
        ),
        (
            {"labels_left": None},
            "round 1  healthy    no audit: nobody answers",
        ),
        (
            {"reference_rate": {"value": 1, "low": 0.2, "high": 1}, "reference_pairs": 1, "labels": 1},
            "round 1  healthy    the judge: 1 of 1 pair (21% to 100%) vs reference",
        ),
        (
            {"anchor_rate": {"value": 0.5, "low": 0.3, "high": 0.7}, "anchor_pairs": 24, "labels": 24},
            "round 1  healthy    the judge: 12 of 24 pairs (31% to 69%) vs last good",
        ),
    ],
)
def test_what_is_not_known_is_left_out(audit: dict[str, object], expected: str) -> None:
    audit = fields_of("audit", answered_by="the judge", **audit)
    assert round_line(1, audit, {"level": "healthy", "sentence": ""}) == expected


def test_what_an_audit_says_of_people() -> None:
    assert rate_of(AUDIT, "reference") == Rate(0.6875, 0.48, 0.83, 24, 0.81, "people")
    assert rate_of(AUDIT, "anchor") == Rate(14 / 24, 0.39, 0.76, 24, 0.55, "people")


def test_a_claim_is_too_high_only_above_the_whole_interval() -> None:
    assert not Rate(0.6, 0.5, 0.7, 24, 0.7, "people").overclaimed
    assert Rate(0.6, 0.5, 0.7, 24, 0.71, "people").overclaimed
    assert not Rate(0.6, 0.5, 0.7, 24, None, "people").overclaimed


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        (
            "rollback",
            {"to": "round-0003", "step_from": 40, "step_to": 30, "kl_undone": 2.134, "reason": "people preferred it"},
            "round 4  ROLLED BACK to the policy of round 3, 10 steps and 2.13 nats undone: people preferred it",
        ),
        (
            "rollback",
            {"to": "round-0000", "step_from": 31, "step_to": 30},
            "round 4  ROLLED BACK to the reference, 1 step undone",
        ),
        ("stopped", {"reason": "3 rollbacks"}, "round 4  STOPPED at the last good policy: 3 rollbacks"),
        (
            "refresh",
            {"accepted": False, "gate_reason": "worse on round 2"},
            "round 4  refresh refused by the gate: worse on round 2",
        ),
        ("refresh", {"accepted": True, "version": 2}, None),
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
    assert event_line(kind, 4, fields_of(kind, **fields)) == expected


def test_where_a_rollback_goes() -> None:
    assert goal("round-0012") == "the policy of round 12"
    assert goal("round-0000") == "the reference"
    assert goal("round-0012-step-0004") == "round-0012-step-0004"


def test_a_reason_of_any_length_stays_a_line() -> None:
    line = event_line("stopped", 4, {"reason": "so\nmany words " * 10_000})
    assert line is not None
    assert len(line) < 700
    assert "\n" not in line
