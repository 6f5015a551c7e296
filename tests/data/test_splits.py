"""Splits that hold in every file and every run, limits of lengths, and the table that remembers."""

from __future__ import annotations

import random

from holdfast.data.fingerprint import fingerprint, prompt_fingerprint
from holdfast.data.splits import Lengths, characters, is_heldout, split
from holdfast.models.prompt import Message

PROMPTS = [f"prompt {n}" for n in range(4000)]


def test_a_prompt_stays_on_its_side_whatever_else_there_is() -> None:
    train, heldout = split(PROMPTS, 0.1)
    assert set(train).isdisjoint(heldout)
    assert {*train, *heldout} == set(PROMPTS)
    shuffled = random.Random(1).sample(PROMPTS, 2000)
    part_train, part_heldout = split([*shuffled, *shuffled], 0.1)
    assert set(part_train) <= set(train)
    assert set(part_heldout) <= set(heldout)
    assert len(part_train) + len(part_heldout) == 2000
    # A larger share keeps what was held out before.
    assert set(heldout) <= set(split(PROMPTS, 0.2)[1])


def test_the_share_is_about_what_was_asked_for() -> None:
    # 4000 draws with probability 0.1: mean 400, standard deviation sqrt(4000 * 0.1 * 0.9) = 19.
    assert abs(len(split(PROMPTS, 0.1)[1]) - 400) < 5 * 19
    assert split(PROMPTS, 0.0)[1] == []


def test_ten_prompts_are_enough_to_hold_one_out() -> None:
    none = [p for p in PROMPTS if not is_heldout(p, 0.1)]
    assert len(split(none[:10], 0.1)[1]) == 1
    assert split(none[:9], 0.1)[1] == []


def test_the_hash_is_the_same_on_every_machine() -> None:
    # Computed once and written down: a change would move prompts between the sides of everybody's splits.
    assert prompt_fingerprint("When do you open?") == fingerprint("plain", "When do you open?")
    assert prompt_fingerprint("When do you open?") == 13958839828587993634
    turns = (Message("user", "When do you open?"),)
    assert prompt_fingerprint(turns) != prompt_fingerprint("When do you open?")
    assert fingerprint("ab", "c") != fingerprint("a", "bc")


def test_limits_include_their_ends() -> None:
    limits = Lengths("characters", (2, 4), (1, 3))
    assert [limits.wrong("prompt", n) for n in (1, 2, 4, 5)] == ["too_short", None, None, "too_long"]
    assert limits.fits(2, 1, 3)
    assert not limits.fits(2, 0)
    assert not limits.fits(2, 3, 4)
    assert Lengths().fits(0, 10**9)
    assert characters((Message("user", "abc"), Message("assistant", "de"))) == 5
