"""The ladder answers more firmly each time, and never without end."""

from __future__ import annotations

import json

from holdfast.config.schema import GuardConfig
from holdfast.guard.ladder import Action, Ladder
from holdfast.guard.verdict import Verdict

CONFIG = GuardConfig(beta_factor=1.5, more_labels=2.0, rollbacks=2)


def verdict(level: str, signature: str = "length") -> Verdict:
    return Verdict(level, f"this is {level}", {"signature": signature})  # type: ignore[arg-type]


def rungs(actions: list[Action]) -> list[str]:
    return [action.rung for action in actions]


def test_a_healthy_round_calls_for_nothing() -> None:
    assert Ladder(CONFIG).climb(verdict("healthy")) == []


def test_watching_climbs_one_rung_a_round_and_stays_on_the_last() -> None:
    ladder = Ladder(CONFIG)
    climbed = [rungs(ladder.climb(verdict("watch"))) for _ in range(4)]
    assert climbed == [["refresh"], ["label_more"], ["tighten"], ["tighten"]]


def test_a_healthy_round_takes_one_step_down() -> None:
    ladder = Ladder(CONFIG)
    ladder.climb(verdict("watch"))
    ladder.climb(verdict("watch"))
    ladder.climb(verdict("healthy"))
    assert rungs(ladder.climb(verdict("watch"))) == ["label_more"]


def test_hacking_rolls_back_and_changes_something() -> None:
    actions = Ladder(CONFIG).climb(verdict("hacking"))
    assert rungs(actions) == ["adversarial", "rollback", "tighten", "refresh"]
    assert all(action.reason == "this is hacking" for action in actions)


def test_hacked_answers_are_labelled_before_the_policy_that_gave_them_is_gone() -> None:
    order = rungs(Ladder(CONFIG).climb(verdict("hacking")))
    assert order.index("adversarial") < order.index("rollback") < order.index("tighten")


def test_the_same_hack_again_is_answered_harder_and_another_one_is_not() -> None:
    ladder = Ladder(CONFIG)
    ladder.climb(verdict("hacking", "length"))
    again = ladder.climb(verdict("hacking", "length"))
    assert rungs(again) == ["adversarial", "rollback", "tighten", "refresh", "label_more"]
    assert next(a.factor for a in again if a.rung == "tighten") == 1.5**2
    other = Ladder(CONFIG)
    other.climb(verdict("hacking", "length"))
    fresh = other.climb(verdict("hacking", "repetition"))
    assert next(a.factor for a in fresh if a.rung == "tighten") == 1.5


def test_attempts_are_bounded_and_a_person_can_grant_more() -> None:
    ladder = Ladder(CONFIG)
    for _ in range(CONFIG.rollbacks):
        assert "stop" not in rungs(ladder.climb(verdict("hacking")))
    last = ladder.climb(verdict("hacking"))
    assert rungs(last) == ["rollback", "stop"]
    assert "2 rollbacks have not cured it" in last[-1].reason
    ladder.granted()
    assert "stop" not in rungs(ladder.climb(verdict("hacking")))


def test_its_memory_survives_as_json() -> None:
    ladder = Ladder(CONFIG)
    ladder.climb(verdict("watch"))
    ladder.climb(verdict("hacking"))
    again = Ladder(CONFIG)
    again.restore(json.loads(json.dumps(ladder.state())))
    assert again.state() == ladder.state()
    assert rungs(again.climb(verdict("hacking"))) == rungs(ladder.climb(verdict("hacking")))
