"""Which policy becomes the last good one, and how many pairs people are asked about."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.config.schema import AuditConfig, GuardConfig
from holdfast.errors import HoldfastError
from holdfast.guard.alarm import Against
from holdfast.guard.audit import AuditPair
from holdfast.guard.course import Terms
from holdfast.guard.guard import Guard
from holdfast.guard.host import Good
from holdfast.guard.ladder import Ladder
from holdfast.guard.plan import AuditPlan, split
from holdfast.guard.review import Review
from holdfast.guard.verdict import Level, Verdict

NOBODY = cast(Any, None)


def review(good_round: int, heard: bool = True) -> Review[Any]:
    good = Good("round-0002", good_round, 12) if good_round else Good()
    guard = cast(Any, SimpleNamespace(heard=heard))
    return Review(GuardConfig(), AuditConfig(), 0, guard, NOBODY, NOBODY, good)


def answers(**wins: int) -> list[AuditPair]:
    """Ten pairs of each kind, so many of them won."""
    return [
        AuditPair(f"{against}-{n}", cast(Against, against), float(n < won), 0.5)
        for against, won in wins.items()
        for n in range(10)
    ]


@pytest.mark.parametrize(
    ("level", "pairs", "good"),
    [
        ("healthy", answers(reference=9, anchor=5, pointed=5), True),
        ("healthy", answers(reference=9, anchor=4, pointed=8), False),
        ("healthy", answers(reference=2, anchor=5, pointed=5), True),  # the reference is not what it goes back to
        ("watch", answers(anchor=6, pointed=6), True),
        ("hacking", answers(anchor=6, pointed=6), False),
        ("worse", answers(anchor=6, pointed=6), False),
        ("unmoved", answers(anchor=6, pointed=6), True),
        ("unreliable", answers(anchor=6, pointed=6), False),
        ("unaudited", answers(anchor=4), False),  # too few, in a run in which others were answered
        ("unaudited", [], False),  # nobody was asked, as where the budget is used up
    ],
)
def test_the_last_good_policy_moves_on_where_people_like_the_new_one_as_well(
    level: Level, pairs: list[AuditPair], good: bool
) -> None:
    assert review(good_round=2).is_good(Verdict(level, "", {}), pairs) is good


def test_where_nobody_ever_answers_the_signals_are_all_there_is_to_go_by() -> None:
    alone = review(good_round=2, heard=False)
    assert alone.is_good(Verdict("unaudited", "", {"trusted": True}), [])
    assert not alone.is_good(Verdict("unaudited", "", {"trusted": False}), [])


def test_before_any_round_was_good_the_reference_is_the_last_good_one() -> None:
    liked = Verdict("healthy", "", {})
    assert review(good_round=0).is_good(liked, answers(reference=6, pointed=6))
    assert not review(good_round=0).is_good(liked, answers(reference=4, pointed=6))


def in_round(number: int, last: bool) -> Any:
    """As much of a host as decides how many pairs are asked about."""
    return SimpleNamespace(
        round=number, last=last, policy=None, reference=None, anchor=None, sample=None,
        fit=None, terms=Terms(), again=dict,
    )  # fmt: skip


class Counting:
    """Stands for the audit: everybody prefers the policy in as many of the pairs as it is told."""

    def __init__(self, version: int, rates: dict[str, float], left: int) -> None:
        self.collector = SimpleNamespace(ensemble=SimpleNamespace(version=version), labeller=None)
        self.rates, self.left, self.bought, self.beside = rates, left, dict.fromkeys(rates, 0), None

    @property
    def budget_left(self) -> int:
        return self.left

    def meet_judge(self) -> None:
        """There is none."""

    def buy(self, round: int, already: int, wanted: Any, *rest: Any, alone: bool = False) -> list[AuditPair]:
        pairs = []
        for opponent, wished in wanted:
            count = min(wished, self.left)
            self.left -= count
            self.bought[opponent.against] += count
            won = self.rates[opponent.against] * count
            pairs += [AuditPair(f"{already}-{n}", opponent.against, float(n < won), 0.6) for n in range(count)]
        return pairs


def asked_about(
    versions: list[int], rates: dict[str, float], rounds: int = 8, budget: int = 10_000
) -> list[dict[str, int]]:
    """The pairs of each kind that are asked about in each of some rounds, judged by a version each."""
    config, audits = GuardConfig(), AuditConfig(pairs=24, more_pairs=72)
    guard, bought = Guard(config, rounds, bar=1e9), []
    for round, version in enumerate(versions, start=1):
        auditing = Counting(version, rates, budget)
        held = Review(config, audits, 0, guard, cast(Any, auditing), NOBODY, Good("g", 1, 1))
        verdict, _ = held.judge(in_round(round, last=round == rounds))
        guard.close_round(verdict)
        bought.append(auditing.bought)
        budget = auditing.left
    return bought


LIKED = {"reference": 0.75, "anchor": 0.625, "pointed": 0.75}
A_FEW, MANY = {"reference": 24, "anchor": 24, "pointed": 24}, {"reference": 24, "anchor": 144, "pointed": 144}


def test_a_reward_that_was_refreshed_is_asked_about_a_little_where_people_like_the_policy() -> None:
    assert asked_about([1, 2, 3], LIKED) == [A_FEW, A_FEW, A_FEW]


def test_a_reward_that_was_not_is_asked_about_twice_as_much_as_in_a_suspicious_round() -> None:
    assert asked_about([1, 1, 2, 1], LIKED) == [A_FEW, MANY, A_FEW, MANY]


def test_a_reward_that_never_is_leaves_labels_for_every_round() -> None:
    bought = asked_about([1] * 30, LIKED, rounds=30, budget=2400)
    assert all(sum(kinds.values()) >= sum(A_FEW.values()) for kinds in bought[:-1])
    assert sum(bought[-1].values()) >= 60  # a quarter of what is left is kept for the choice at the end
    assert bought[1]["anchor"] > 24
    assert sum(sum(kinds.values()) for kinds in bought) <= 2400


def test_the_budget_of_the_default_plan_lasts_for_a_reward_that_is_never_refreshed() -> None:
    bought = asked_about([1] * 8, LIKED, budget=AuditConfig().budget)
    assert bought[:-1] == [A_FEW] + [MANY] * 6
    assert bought[-1]["anchor"] >= 144


@pytest.mark.parametrize("versions", [[1] * 8, list(range(1, 9))])
def test_a_small_budget_is_spread_over_all_rounds(versions: list[int]) -> None:
    bought = asked_about(versions, LIKED, budget=100)
    sums = [sum(kinds.values()) for kinds in bought]
    # 100 / 8, 87 / 7, 74 / 6 and 61 / 5 are 13, rounded up; 48 are four times 12, of which 3 are kept for the choice.
    assert sums == [13, 13, 13, 13, 12, 12, 12, 9]
    assert all(kinds["anchor"] >= max(kinds["reference"], kinds["pointed"]) for kinds in bought)


def test_a_round_takes_what_it_needs_where_the_rounds_to_come_have_theirs() -> None:
    plan = AuditPlan(AuditConfig(pairs=24, more_pairs=72))
    # Seven rounds to come: 7 * 72 first pairs, and of the last one 96 + 72 further and 288 for the choice: 960.
    assert plan.share(2400, 7, last=False, acts=True) == 2400 - 960
    assert plan.share(2400, 7, last=False, acts=False) == 2400 - 672
    assert plan.share(1200, 7, last=False, acts=True) == 240
    assert plan.share(1000, 7, last=False, acts=True) == 125
    assert plan.share(400, 0, last=True, acts=True) == 300
    assert plan.share(4000, 0, last=True, acts=True) == 4000 - 288
    assert plan.share(400, 0, last=True, acts=False) == 400
    assert plan.share(0, 7, last=False, acts=True) == 0


def test_a_share_is_split_evenly_with_the_rest_for_the_first_kinds() -> None:
    assert split(72, 24, 3) == [24, 24, 24]
    assert split(100, 24, 3) == [24, 24, 24]
    assert split(13, 24, 3) == [5, 4, 4]
    assert split(2, 24, 3) == [1, 1, 0]
    assert split(0, 24, 2) == [0, 0]


def test_a_round_without_a_step_asks_nobody_unless_it_is_the_last() -> None:
    config, audits = GuardConfig(), AuditConfig(pairs=24, more_pairs=72)
    for last in (False, True):
        guard = Guard(config, 8, bar=1e9)
        guard.begun = True  # somebody watches, and has seen no step
        auditing = Counting(1, LIKED, 2_000)
        held = Review(config, audits, 0, guard, cast(Any, auditing), NOBODY, Good("g", 1, 1))
        verdict, pairs = held.judge(in_round(2, last=last))
        assert verdict.level == "unaudited"
        assert bool(pairs) is last


def test_a_lost_round_is_asked_about_further_and_an_unclear_one_further_still() -> None:
    even = {"reference": 0.75, "anchor": 0.5, "pointed": 0.45}
    assert asked_about([1, 2], even)[1]["anchor"] == 72
    lost = {"reference": 0.75, "anchor": 0.375, "pointed": 0.75}
    assert asked_about([1, 2], lost)[1]["anchor"] == 144
    assert asked_about([1, 1], lost)[1]["anchor"] == AuditPlan(AuditConfig(pairs=24, more_pairs=72)).most == 216


@pytest.mark.parametrize(
    ("level", "against", "won", "stands"),
    [
        ("healthy", "anchor", 36, True),
        # Of 72 pairs the last good policy wins 40: 8 more than it loses, and one standard error is 8.5.
        ("healthy", "anchor", 32, True),
        ("healthy", "anchor", 31, False),
        ("healthy", "pointed", 10, True),
        ("watch", "anchor", 36, False),
        ("hacking", "anchor", 36, False),
    ],
)
def test_a_policy_stands_where_people_have_nothing_against_it(level: Any, against: Any, won: int, stands: bool) -> None:
    held = Review(GuardConfig(), AuditConfig(), 0, NOBODY, NOBODY, NOBODY, Good("g", 1, 1))
    pairs = [AuditPair(str(n), against, float(n < won), 0.6) for n in range(72)]
    assert held.stands(Verdict(level, "", {}), pairs) is stands


def test_before_any_round_was_good_the_last_good_policy_is_the_reference() -> None:
    held = Review(GuardConfig(), AuditConfig(), 0, NOBODY, NOBODY, NOBODY)
    pairs = [AuditPair(str(n), "reference", float(n < 31), 0.6) for n in range(72)]
    assert held.prefers_anchor(pairs)
    held.good = Good("round-0001", 1, 6)
    assert not held.prefers_anchor(pairs)


def choosing(again: float, left: int = 2_000, mode: str = "act", good: Good | None = None) -> tuple[Any, Counting]:
    """A last round in which the last good policy wins 83 of 144 pairs; `again` is how often it loses further ones."""
    config, audits = GuardConfig(mode=cast(Any, mode)), AuditConfig(pairs=24, more_pairs=72)
    good = Good("round-0006", 6, 36) if good is None else good
    opponent = "anchor" if good.round else "reference"
    auditing = Counting(1, {opponent: again}, left)
    held = Review(config, audits, 0, NOBODY, cast(Any, auditing), NOBODY, good)
    first = [AuditPair(str(n), cast(Against, opponent), float(n < 61), 0.6) for n in range(144)]
    return held.choose(in_round(8, last=True), first), auditing


def test_before_a_run_ends_with_an_earlier_policy_twice_as_many_pairs_are_asked_about() -> None:
    # 61 + 0.5 * 288 = 205 of 432 won: 22 more lost than won, and one standard error is 20.8.
    choice, auditing = choosing(again=0.5)
    assert (choice.back, choice.again, auditing.bought) == (True, 288, {"anchor": 288})
    (action,) = choice.actions()
    assert action.rung == "rollback"
    assert "the labeller preferred the last good policy in 227 of 432 fresh pairs" in action.reason


def test_a_lead_that_the_further_pairs_do_not_bear_out_takes_nothing_back() -> None:
    # 61 + 0.53125 * 288 = 214 won: 4 more lost than won.
    choice, _ = choosing(again=0.53125)
    assert (choice.back, choice.again, choice.actions()) == (False, 288, [])
    assert choice.sentence.startswith("the labeller preferred the last good policy in 218 of 432 fresh pairs")
    assert len(choice.pairs) == 432


def test_how_many_are_asked_about_again_does_not_depend_on_who_has_answered() -> None:
    held = Review(GuardConfig(), AuditConfig(pairs=24, more_pairs=72), 0, NOBODY, NOBODY, NOBODY)
    asked = []
    for answered in (143, 144):
        auditing = Counting(1, {"reference": 0.5}, 2_000)
        held.auditor = cast(Any, auditing)
        held.choose(in_round(8, last=True), [AuditPair(str(n), "reference", 0.0, 0.6) for n in range(answered)])
        asked.append(auditing.bought)
    assert asked == [{"reference": 288}] * 2


def test_where_no_labels_are_left_the_first_pairs_decide() -> None:
    choice, _ = choosing(again=1.0, left=0)
    assert (choice.back, choice.again) == (True, 0)


def test_nobody_is_asked_again_where_the_guard_only_advises() -> None:
    choice, auditing = choosing(again=1.0, mode="advise")
    assert (choice.back, auditing.bought) == (True, {"anchor": 0})


def test_a_run_in_which_no_round_was_good_is_asked_about_the_reference_again() -> None:
    choice, auditing = choosing(again=0.75, good=Good())
    assert (choice.back, auditing.bought) == (False, {"reference": 288})


def test_a_policy_that_people_like_as_well_is_chosen_without_asking() -> None:
    auditor = cast(Any, Counting(1, {}, 0))
    held = Review(GuardConfig(), AuditConfig(), 0, NOBODY, auditor, NOBODY, Good("g", 1, 1))
    pairs = [AuditPair(str(n), "anchor", float(n < 66), 0.6) for n in range(144)]
    choice = held.choose(in_round(8, last=True), pairs)
    assert (choice.back, choice.again) == (False, 0)


def test_a_saved_guard_that_does_not_fit_is_refused() -> None:
    saved = Review(
        GuardConfig(),
        AuditConfig(),
        0,
        Guard(GuardConfig(), 8),
        cast(Any, SimpleNamespace(spent=3, scalar=None, beside=None)),
        Ladder(GuardConfig()),
    )
    state = json.loads(json.dumps(saved.state()))
    saved.restore(state)
    assert json.loads(json.dumps(saved.state())) == state
    for change in ({"guard": {}}, {"good": {"name": "g", "place": 1}}):
        with pytest.raises(HoldfastError, match="use another checkpoint"):
            saved.restore({**state, **change})


class Elsewhere:
    """A host whose trainer does what it likes about an advice: here it declines whatever it is told to."""

    def __init__(self, **does: Any) -> None:
        self.does, self.asked, self.events = does, list[str](), list[str]()
        self.round, self.last, self.refreshes_at_once = 2, False, False
        self.terms, self.fit, self.again = Terms(), None, dict
        self.policy = self.reference = self.anchor = self.sample = None

    def event(self, kind: str, **fields: object) -> None:
        self.events.append(kind)

    def say(self, line: str) -> None: ...

    def learn_known(self) -> None: ...

    def roll_back(self, good: Good) -> Any:
        self.asked.append("rollback")
        return self.does.get("rollback")

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.asked.append(name)


def hacked(host: Elsewhere, told: list[Any]) -> tuple[Any, Any]:
    """A round in which people prefer the reference in every pair, and what the review makes of it."""
    config, audits = GuardConfig(), AuditConfig(pairs=24, more_pairs=72)
    guard, auditing = Guard(config, 8, bar=20.0), cast(Any, Counting(1, {"reference": 0.0, "pointed": 0.0}, 2_000))
    auditing.collector.asked, auditing.scalar = 0, None
    held = Review(config, audits, 0, guard, auditing, Ladder(config))
    held.decided = lambda verdict, actions: told.append((verdict.level, [a.rung for a in actions], list(host.asked)))
    return held.conduct(cast(Any, host)), held


def test_all_that_follows_from_a_verdict_is_told_before_any_of_it_is_done() -> None:
    told: list[Any] = []
    host = Elsewhere(rollback={"step_from": 12})
    outcome, _ = hacked(host, told)
    ((level, rungs, done_before),) = told
    assert (level, done_before) == (outcome.verdict.level, [])
    assert rungs == [action.rung for action in outcome.actions]
    assert host.asked == rungs
    assert outcome.rolled_back


def test_a_rollback_that_was_not_done_is_left_out() -> None:
    host = Elsewhere()
    outcome, held = hacked(host, [])
    assert "rollback" in [action.rung for action in outcome.actions]
    assert not outcome.rolled_back
    assert "rollback" not in host.events
    assert host.events.count("left_out") == len(outcome.actions)
    assert held.guard.evidence().value > 20.0, "what speaks against the policy, which is still there, is not forgotten"
