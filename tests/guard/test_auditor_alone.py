"""The auditor alone: any two who answer, any labeller, and what the report says of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import holdfast as hf

PROMPTS = [f"Question {n}?" for n in range(40)]


def short(prompts: Sequence[hf.Prompt]) -> list[str]:
    return ["At noon." for _ in prompts]


def long(prompts: Sequence[hf.Prompt]) -> list[str]:
    return ["We open at noon, as we always do." for _ in prompts]


def prefers_short(prompt: str, a: str, b: str) -> str:
    return "tie" if a == b else "a" if len(a) < len(b) else "b"


def test_who_is_preferred_and_by_how_much():
    report = hf.Auditor(prefers_short).compare(short, long, PROMPTS)
    assert (report.pairs, report.reference.rate.value) == (40, 1.0)
    assert hf.Auditor(prefers_short).compare(long, short, PROMPTS).reference.rate.value == 0.0
    assert hf.Auditor(prefers_short).compare(long, long, PROMPTS).reference.rate.value == 0.5


def test_the_labeller_is_asked_blind():
    """Both answerers come on either side about as often, and the same seed shuffles in the same way."""

    def lefts(seed: int) -> list[str]:
        shown: list[str] = []

        def see(prompt: str, a: str, b: str) -> str:
            shown.append(a)
            return "tie"

        hf.Auditor(see, seed=seed).compare(short, long, PROMPTS)
        return shown

    assert 10 < lefts(0).count("At noon.") < 30
    assert lefts(0) == lefts(0) != lefts(1)


class Forgetful:
    name = "forgetful"

    def label(self, comparisons: Sequence[hf.Comparison]) -> list[hf.Label]:
        return [hf.Label(c.id, self.name, hf.Choice.TIE) for c in comparisons[:7]]


def test_what_nobody_answered_does_not_count():
    assert hf.Auditor(Forgetful()).compare(short, long, PROMPTS).pairs == 7


def test_claims_are_held_against_what_people_say():
    sure = hf.Auditor(prefers_short, claims=lambda prompts, ours, theirs: [0.99] * len(prompts))
    assert sure.compare(short, long, PROMPTS).reference.claimed == pytest.approx(0.99)
    assert not sure.compare(short, long, PROMPTS).miscalibrated
    assert sure.compare(long, short, PROMPTS).miscalibrated


def test_an_answer_too_few_is_refused():
    with pytest.raises(hf.HoldfastError, match="There are 40 prompts, and 39 answers to them"):
        hf.Auditor(prefers_short).compare(short, lambda prompts: short(prompts)[1:], PROMPTS)
