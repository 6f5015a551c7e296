"""The guard through rounds: it learns what is usual, sees what is not, and remembers through a restart."""

from __future__ import annotations

import json
from dataclasses import replace

import guard_views
import pytest
import torch
from guard_views import drawn_view

from holdfast.config.schema import GuardConfig
from holdfast.errors import HoldfastError
from holdfast.guard.alarm import Against
from holdfast.guard.audit import AuditPair
from holdfast.guard.guard import Guard
from holdfast.guard.signals import SIGNALS

CONFIG = GuardConfig()
STEPS = 10


def begun(seed: int = 0, config: GuardConfig = CONFIG) -> tuple[Guard, torch.Generator]:
    rng = torch.Generator().manual_seed(seed)
    guard = Guard(config, rounds=8)
    know(guard)
    guard.begin([drawn_view(rng, of_reference=True) for _ in range(config.baseline_batches)])
    return guard, rng


def know(guard: Guard) -> None:
    rng = torch.Generator().manual_seed(99)
    responses = [torch.randint(200, (40,), generator=rng).tolist() for _ in range(300)]
    guard.know(responses, torch.randn(300, 8, generator=rng), 200)


def answers(wins: int, pairs: int, against: Against = "anchor", claim: float = 0.6) -> list[AuditPair]:
    return [AuditPair(f"{against}-{i}", against, float(i < wins), claim) for i in range(pairs)]


def a_round(guard: Guard, rng: torch.Generator, steps: int = STEPS, **more: float) -> None:
    for _ in range(steps):
        guard.see(drawn_view(rng, **more))  # type: ignore[arg-type]


def test_every_signal_is_read_under_the_name_of_a_metric() -> None:
    guard, rng = begun()
    for _ in range(6):
        readings = guard.see(drawn_view(rng))
    of_an_ensemble = [signal for signal in SIGNALS.values() if not signal.needs.startswith("a reward that")]
    of_an_ensemble = [signal for signal in of_an_ensemble if not signal.needs.startswith("a reward with")]
    assert set(readings) == {signal.metric for signal in of_an_ensemble}


def test_a_healthy_round_raises_no_suspicion() -> None:
    guard, rng = begun()
    for _ in range(4):
        a_round(guard, rng)
        assert not guard.suspicion().suspicious
        verdict = guard.judge(answers(30, 48), labels_left=100, ensemble=1)
        assert verdict.level == "healthy"
        guard.close_round(verdict)


def test_longer_answers_are_noticed_in_words() -> None:
    guard, rng = begun()
    a_round(guard, rng, length=84.0)
    found = guard.suspicion()
    assert found.suspicious
    assert any("2.1x longer than the reference's" in telling.words for telling in found.telling)


def test_a_shift_in_feature_space_is_noticed() -> None:
    guard, rng = begun()
    a_round(guard, rng, shift=1.0)
    assert {telling.name for telling in guard.suspicion().telling} >= {"feature_shift"}


def test_false_suspicion_is_rare_where_nothing_changes() -> None:
    config = GuardConfig(baseline_batches=8)
    rounds = suspicious = 0
    for seed in range(12):
        guard, rng = begun(seed, config)
        for _ in range(4):
            for _ in range(4):
                guard.see(drawn_view(rng, answers=24))
            suspicious += guard.suspicion().suspicious
            rounds += 1
            guard.close_round(guard.judge(answers(30, 48), 100, ensemble=1))
    assert suspicious <= 1


def test_a_round_that_people_reject_does_not_become_usual() -> None:
    guard, rng = begun()
    a_round(guard, rng, length=84.0)
    before = guard.suspicion().p
    verdict = guard.judge(answers(20, 72), labels_left=100, ensemble=1)
    assert verdict.level != "healthy"
    guard.close_round(verdict)
    a_round(guard, rng, length=84.0)
    assert guard.suspicion().suspicious
    assert guard.suspicion().p == pytest.approx(before, rel=1.0)


def test_a_round_that_people_like_becomes_usual() -> None:
    guard, rng = begun()
    for _ in range(3):
        a_round(guard, rng, length=60.0)
        guard.close_round(guard.judge(answers(50, 72), labels_left=100, ensemble=1))
    a_round(guard, rng, length=60.0)
    assert not guard.suspicion().suspicious


def test_people_who_turn_away_make_it_hacking_and_a_rollback_spends_it() -> None:
    guard, rng = begun()
    for _ in range(2):
        a_round(guard, rng)
        guard.close_round(guard.judge(answers(30, 48), 1000, ensemble=1))
    a_round(guard, rng, length=84.0)
    verdict = guard.judge(answers(15, 72, claim=0.78), 800, ensemble=1)
    assert verdict.level == "hacking"
    assert verdict.signature == "length"
    assert guard.miscalibrated
    guard.after_rollback()
    guard.close_round(verdict)
    a_round(guard, rng)
    assert not guard.suspicion().suspicious
    assert guard.judge(answers(30, 48), 700, ensemble=1).level == "healthy"
    assert not guard.miscalibrated


def test_judging_a_round_again_with_more_answers_counts_each_once() -> None:
    once, rng = begun()
    a_round(once, rng)
    once.judge(answers(20, 72), 100, ensemble=1)
    twice, rng = begun()
    a_round(twice, rng)
    twice.judge(answers(20, 24), 148, ensemble=1)
    twice.judge(answers(20, 72), 100, ensemble=1)
    assert once.evidence() == twice.evidence()
    assert twice.audited()["anchor_pairs"] == 72


def test_no_labels_no_hacking() -> None:
    guard, rng = begun()
    a_round(guard, rng, length=84.0)
    verdict = guard.judge([], labels_left=0, ensemble=1)
    assert verdict.level == "unaudited"
    assert verdict.suspect, "its signals are acted on as in a watch"
    assert "no audit labels" in verdict.sentence


def test_a_guard_restored_within_a_round_goes_on_bit_for_bit() -> None:
    guard, rng = begun()
    a_round(guard, rng)
    guard.close_round(guard.judge(answers(30, 48), 100, ensemble=1))
    a_round(guard, rng, steps=4)
    again = Guard(CONFIG, rounds=8)
    again.restore(json.loads(json.dumps(guard.state())))
    know(again)
    assert again.begun
    assert again.state() == guard.state()
    views = [drawn_view(rng, length=50.0) for _ in range(6)]
    assert [guard.see(view) for view in views] == [again.see(view) for view in views]
    assert guard.suspicion() == again.suspicion()
    assert guard.judge(answers(20, 48), 50, ensemble=1) == again.judge(answers(20, 48), 50, ensemble=1)
    assert guard.state() == again.state()


def test_equal_inputs_give_equal_bits() -> None:
    first, second = (begun(5) for _ in range(2))
    for guard, rng in (first, second):
        a_round(guard, rng)
    assert first[0].state() == second[0].state()


def test_a_signal_that_is_new_since_the_checkpoint_begins_empty() -> None:
    guard, _ = begun()
    state = json.loads(json.dumps(guard.state()))
    del state["baselines"]["length"]
    state["baselines"]["gone"] = {"reference": [], "healthy": []}
    again, rng = Guard(CONFIG, 8), torch.Generator().manual_seed(1)
    again.restore(state)
    a_round(again, rng)
    assert "length" not in dict(again.suspicion().p_values)


def test_readings_that_are_not_numbers_are_left_out() -> None:
    guard, _ = begun()
    odd = guard_views.view(
        [[1, 2, 3]], logprob=float("nan"), learned={"val/ratio": float("inf")}, features_BD=torch.zeros(1, 8)
    )
    readings = guard.see(odd)
    assert "signal/entropy" not in readings
    assert "signal/ppo_ratio" not in readings
    assert readings["signal/length"] == 3.0


def test_a_guard_that_does_not_know_what_is_usual_says_so() -> None:
    guard = Guard(GuardConfig(), rounds=3)
    with pytest.raises(HoldfastError, match=r"call begin\(\) with the reference's answers"):
        guard.see(guard_views.view([[1, 2]]))
    with pytest.raises(HoldfastError, match="1 batches of the reference's answers; it needs at least 2"):
        guard.begin([guard_views.view([[1, 2]])])
    with pytest.raises(HoldfastError, match="0 rounds; plan at least 1"):
        Guard(GuardConfig(), rounds=0)


def test_a_batch_of_ones_own_is_the_policys_and_those_to_begin_with_are_the_references() -> None:
    guard = Guard(GuardConfig(), rounds=3)
    batch = replace(guard_views.view([[1, 2, 3], [2, 3]]), learned={})
    guard.begin([batch, batch])
    assert "signal/kl_per_token" not in guard.usual()
    assert "signal/kl_per_token" in guard.see(batch)
