"""The ladder answers more firmly each time, and never without end."""

from __future__ import annotations

import json

import pytest

from holdfast.config.schema import GuardConfig
from holdfast.guard.ladder import Action, Ladder
from holdfast.guard.verdict import Verdict

CONFIG = GuardConfig(beta_factor=1.5, rollbacks=2)


def verdict(level: str, signature: str = "length") -> Verdict:
    return Verdict(level, f"this is {level}", {"signature": signature})  # type: ignore[arg-type]


def climb(ladder: Ladder, level: str, signature: str = "length", anchor: str = "round-0002") -> list[Action]:
    return ladder.climb(verdict(level, signature), anchor)


def remedies(actions: list[Action]) -> dict[str, int]:
    return {action.rung: action.times for action in actions if action.rung in ("tighten", "slow_down")}


def rungs(actions: list[Action]) -> list[str]:
    return [action.rung for action in actions]


def test_a_healthy_round_calls_for_nothing() -> None:
    assert climb(Ladder(CONFIG), "healthy") == []


def test_watching_climbs_one_rung_a_round_and_tightens_three_times_in_a_run() -> None:
    ladder = Ladder(CONFIG)
    climbed = [rungs(climb(ladder, "watch"))[0] for _ in range(7)]
    assert climbed == ["refresh", "label_more", "tighten", "tighten", "tighten", "refresh", "refresh"]
    ladder.granted()
    assert rungs(climb(ladder, "watch")) == ["tighten"]


def test_watching_counts_a_component_that_people_do_not_grant_for_less_and_takes_no_rung_for_it() -> None:
    named = Verdict("watch", "so", {"component": "cites a source"})
    ladder = Ladder(CONFIG)
    for _ in range(3):
        assert ladder.climb(named, "round-0002") == [Action("discount", "so", component="cites a source")]
    assert rungs(climb(ladder, "watch")) == ["refresh"]
    cleared = Verdict("watch", "so", {"component": "cites a source", "suspect": False})
    assert ladder.climb(cleared, "round-0002") == []
    lacking = Ladder(CONFIG, frozenset({"discount"}))
    assert rungs(lacking.climb(named, "round-0002")) == ["refresh"]


def test_what_a_host_lacks_is_left_out() -> None:
    ladder = Ladder(CONFIG, frozenset({"refresh", "label_more", "adversarial"}))
    climbed = [rungs(climb(ladder, "watch")) for _ in range(5)]
    assert climbed == [[], ["tighten"], ["tighten"], ["tighten"], []], "waiting first, and no more than three times"
    assert rungs(climb(ladder, "hacking")) == ["rollback", "tighten"]
    again = Ladder(CONFIG, ladder.lacks)
    again.restore(json.loads(json.dumps(ladder.state())))
    assert again == ladder


@pytest.mark.parametrize("watched", [2, 3, 6])
def test_a_healthy_round_takes_one_step_down_however_long_it_was_watched(watched: int) -> None:
    ladder = Ladder(CONFIG)
    for _ in range(watched):
        climb(ladder, "watch")
    climb(ladder, "healthy")
    assert rungs(climb(ladder, "watch")) == ["label_more"]


def test_hacking_rolls_back_and_changes_something() -> None:
    actions = climb(Ladder(CONFIG), "hacking")
    assert rungs(actions) == ["adversarial", "rollback", "tighten", "refresh"]
    assert all(action.reason == "this is hacking" for action in actions)


def test_hacked_answers_are_labelled_before_the_policy_that_gave_them_is_gone() -> None:
    order = rungs(climb(Ladder(CONFIG), "hacking"))
    assert order.index("adversarial") < order.index("rollback") < order.index("tighten")


def test_the_same_hack_again_is_answered_harder_and_another_one_is_not() -> None:
    ladder = Ladder(CONFIG)
    climb(ladder, "hacking", "length")
    again = climb(ladder, "hacking", "length")
    assert rungs(again) == ["adversarial", "rollback", "tighten", "refresh", "label_more"]
    other = Ladder(CONFIG)
    climb(other, "hacking", "length")
    assert "label_more" not in rungs(climb(other, "hacking", "repetition"))


def test_what_a_rollback_undoes_is_done_over_and_once_more_on_top() -> None:
    ladder = Ladder(CONFIG)
    hacks = [("length", "round-0002"), ("repetition", "round-0002"), ("repetition", "round-0005")]
    assert [remedies(climb(ladder, "hacking", *hack)) for hack in hacks[:2]] == [{"tighten": 1}, {"tighten": 2}]
    # The policy of round 5 was good as it was held by then; that is in its checkpoint and comes back with it.
    ladder.granted()
    assert remedies(climb(ladder, "hacking", *hacks[2])) == {"tighten": 1}


def test_what_a_watch_tightened_since_the_checkpoint_is_done_over_as_well() -> None:
    ladder = Ladder(CONFIG)
    for _ in range(4):
        climb(ladder, "watch")  # refreshed, labelled more, held closer twice
    assert remedies(climb(ladder, "hacking")) == {"tighten": 3}
    assert remedies(climb(ladder, "hacking", anchor="round-0006")) == {"tighten": 1}


def test_steps_that_are_not_numbers_slow_the_policy_down_and_leave_it_held_as_it_was() -> None:
    ladder = Ladder(GuardConfig(rollbacks=4))
    assert remedies(ladder.broken("not a number", "round-0002")) == {"slow_down": 1}
    assert remedies(climb(ladder, "hacking")) == {"tighten": 1, "slow_down": 1}
    assert remedies(ladder.broken("not a number", "round-0002")) == {"tighten": 1, "slow_down": 2}
    assert rungs(ladder.broken("not a number", "round-0003")) == ["rollback", "slow_down"]
    assert ladder.broken("not a number", "round-0003") == []


def test_a_run_that_stops_to_ask_is_left_as_it_was_held_last() -> None:
    ladder = Ladder(CONFIG)
    last = [climb(ladder, "hacking") for _ in range(CONFIG.rollbacks + 1)][-1]
    assert remedies(last) == {"tighten": CONFIG.rollbacks}
    assert rungs(last) == ["rollback", "tighten", "stop"]


def test_attempts_are_bounded_and_a_person_can_grant_more() -> None:
    ladder = Ladder(CONFIG)
    for _ in range(CONFIG.rollbacks):
        assert "stop" not in rungs(climb(ladder, "hacking"))
    last = climb(ladder, "hacking")
    assert rungs(last)[-1] == "stop"
    assert "2 rollbacks have not cured it" in last[-1].reason
    ladder.granted()
    assert "stop" not in rungs(climb(ladder, "hacking"))


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (GuardConfig(rollbacks=0), "guard.rollbacks allows no attempt to go on: "),
        (GuardConfig(rollbacks=2, mode="advise"), "2 rollbacks have been advised before: "),
        (GuardConfig(rollbacks=1), "1 rollback has not cured it: "),
    ],
)
def test_why_it_stops_is_true_where_nothing_was_tried(config: GuardConfig, reason: str) -> None:
    ladder = Ladder(config)
    last = [climb(ladder, "hacking") for _ in range(config.rollbacks + 1)][-1]
    assert last[-1].rung == "stop"
    assert last[-1].reason.startswith(reason)


def test_worse_goes_back_slower_each_time_and_calls_nothing_hacked() -> None:
    ladder = Ladder(CONFIG)
    climbed = [climb(ladder, "worse") for _ in range(CONFIG.rollbacks + 1)]
    assert [rungs(actions) for actions in climbed] == [["rollback", "slow_down"]] * 2 + [
        ["rollback", "slow_down", "stop"]
    ]
    assert [remedies(actions)["slow_down"] for actions in climbed] == [1, 2, 2]
    assert remedies(climb(Ladder(CONFIG), "worse", anchor="round-0005")) == {"slow_down": 1}


def test_worse_and_hacking_share_their_attempts() -> None:
    ladder = Ladder(CONFIG)
    climb(ladder, "worse")
    assert remedies(climb(ladder, "hacking")) == {"tighten": 1, "slow_down": 1}
    assert rungs(climb(ladder, "worse"))[-1] == "stop"


@pytest.mark.parametrize("level", ["unaudited", "unreliable", "unmoved"])
def test_what_nobody_can_judge_is_watched_where_its_signals_are_suspicious(level: str) -> None:
    ladder = Ladder(CONFIG)
    assert ladder.climb(Verdict(level, "", {"suspect": False}), "round-0002") == []  # type: ignore[arg-type]
    climbed = ladder.climb(Verdict(level, "", {"suspect": True}), "round-0002")  # type: ignore[arg-type]
    assert rungs(climbed) == ["refresh"]


def test_a_watch_for_a_setting_alone_is_left_to_a_person() -> None:
    assert Ladder(CONFIG).climb(Verdict("watch", "no answer ends", {"suspect": False}), "round-0002") == []


def test_its_memory_survives_as_json() -> None:
    ladder = Ladder(CONFIG)
    climb(ladder, "watch")
    climb(ladder, "hacking")
    again = Ladder(CONFIG)
    again.restore(json.loads(json.dumps(ladder.state())))
    assert again.state() == ladder.state()
    assert rungs(climb(again, "hacking")) == rungs(climb(ladder, "hacking"))
