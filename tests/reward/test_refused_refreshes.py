"""Refreshing behind the gate: what becomes of a candidate that is refused, and what the gate is shown."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from refreshed import PROMPTS, RESPONSES, add, begun, is_held_out, numbers_of, refreshing_of, same, weights_of
from toy_preferences import toy_config, toy_ensemble, toy_pairs

from holdfast.config.schema import GateConfig, RefreshConfig
from holdfast.preferences.comparison import Choice, Comparison, Label, Provenance, Response
from holdfast.preferences.pair import Pair
from holdfast.preferences.store import PreferenceStore
from holdfast.randomness import Streams
from holdfast.reward import refresher as module
from holdfast.reward import training
from holdfast.reward.ensemble import Ensemble
from holdfast.reward.evidence import Stance
from holdfast.reward.examination import Enquiry
from holdfast.reward.gate import Decision
from holdfast.reward.training import unseen_by
from holdfast.statistics import Share

NONE = Share(0.0, 0)


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[list[Stance]]:
    """A gate that lets nothing in; what it was shown."""
    shown: list[list[Stance]] = []

    def decision_on(opinions: Sequence[Stance], *_rest: object) -> Decision:
        shown.append(list(opinions))
        return Decision(False, "not today")

    monkeypatch.setattr(module, "decision_on", decision_on)
    return shown


def test_a_refused_candidate_is_saved_and_the_version_in_use_stays_bit_for_bit(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]], refused: list[list[Stance]]
) -> None:
    refreshing = begun(store, tmp_path)
    ensemble = refreshing.ensemble
    before, scores_KB, watermark = weights_of(ensemble), ensemble.scores(PROMPTS, RESPONSES), ensemble.watermark
    add(store, range(100, 110), 2)
    outcome = refreshing.refresh(2, 5, Streams(0))
    assert outcome is not None
    assert (outcome.accepted, outcome.version, outcome.in_use, outcome.decision.reason) == (False, 2, 1, "not today")
    assert same(weights_of(ensemble), before)
    assert torch.equal(ensemble.scores(PROMPTS, RESPONSES), scores_KB)
    assert (ensemble.version, ensemble.labels, ensemble.watermark) == (1, 40, watermark)
    assert refreshing.versions.numbers() == [1, 2]
    refreshing.versions.load_in_use_into(ensemble)
    assert ensemble.version == 1
    refreshing.versions.load_into(ensemble, 2)
    assert not same(weights_of(ensemble), before), "what was refused can be looked at"


def test_what_was_refused_is_still_new_and_still_due(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]], refused: list[list[Stance]]
) -> None:
    refreshing = begun(store, tmp_path)
    refreshing.settled = True
    add(store, range(100, 110), 2)
    refreshing.refresh(2, 5, Streams(0))
    assert (refreshing.last_round, refreshing.last_step, refreshing.settled) == (1, 0, True)
    add(store, range(200, 210), 3)
    outcome = refreshing.refresh(3, 9, Streams(0))
    assert outcome is not None
    assert outcome.version == 3
    assert numbers_of(trained[2][-20:]) == [*range(100, 110), *range(200, 210)]
    assert sum(j.fresh for j in refused[1]) == 20


def test_an_accepted_candidate_is_used(store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]) -> None:
    refreshing = begun(store, tmp_path)
    add(store, range(100, 108), 2)
    outcome = refreshing.refresh(2, 5, Streams(0))
    assert outcome is not None
    assert (outcome.accepted, outcome.version, outcome.in_use) == (True, 2, 2)
    # The fake fit makes every opinion twice as firm and leaves who is preferred as it was.
    assert outcome.before.newest is not None
    assert outcome.after.newest is not None
    assert outcome.before.newest.accuracy == outcome.after.newest.accuracy
    event = outcome.gate_event()
    assert set(event) == {"accepted", "reason", "version", "in_use", "checks", "before", "after"}
    assert {"name", "passed", "value", "limit", "words"} == set(event["checks"][0])


def test_without_a_gate_every_candidate_is_used(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]], refused: list[list[Stance]]
) -> None:
    refreshing = begun(store, tmp_path)
    refreshing.gate = GateConfig(use=False)
    add(store, range(100, 110), 2)
    outcome = refreshing.refresh(2, 5, Streams(0))
    assert outcome is not None
    assert (outcome.accepted, outcome.in_use, outcome.decision.checks) == (True, 2, ())
    assert refused == []


def test_a_round_done_again_makes_the_same_version_and_a_rolled_back_run_a_new_one(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]
) -> None:
    refreshing = begun(store, tmp_path)
    add(store, range(100, 108), 2)

    def back_to_version_1() -> None:
        refreshing.versions.load_into(refreshing.ensemble, 1)
        refreshing.last_round, refreshing.last_step = 1, 0

    refreshing.refresh(2, 5, Streams(0))
    weights, means = weights_of(refreshing.ensemble), refreshing.ensemble.means
    # Killed before the checkpoint was written, and resumed from the one before.
    back_to_version_1()
    refreshing.refresh(2, 5, Streams(0))
    assert refreshing.versions.numbers() == [1, 2]
    assert same(weights_of(refreshing.ensemble), weights)
    assert (refreshing.ensemble.version, refreshing.ensemble.means) == (2, means)
    # Rolled back: rounds go on counting.
    back_to_version_1()
    outcome = refreshing.refresh(4, 12, Streams(0))
    assert outcome is not None
    assert outcome.version == 3
    assert refreshing.versions.numbers() == [1, 2, 3]


def test_the_gate_only_hears_opinions_of_members_that_have_not_learnt_from_the_label(
    store: PreferenceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over three versions and for each member: what it is asked about, it has never been trained on."""
    learnt: list[set[str]] = [set(), set()]
    asked: list[set[str]] = [set(), set()]
    labels_for, log_odds = training.labels_for, module.log_odds

    def learning(k: int, members: int, pairs: Sequence[Pair]) -> Sequence[Pair]:
        share = labels_for(k, members, pairs)
        learnt[k] |= {p.key for p in share}
        return share

    def asking(ensemble: Ensemble, questions: Sequence[Enquiry]) -> list[float]:
        for q in questions:
            assert q.pair.key not in learnt[q.member]
            asked[q.member].add(q.pair.key)
        return log_odds(ensemble, questions)

    monkeypatch.setattr(training, "labels_for", learning)
    monkeypatch.setattr(module, "log_odds", asking)
    monkeypatch.setattr(module, "decision_on", lambda *_: Decision(True, "come in"))
    items = add(store, range(60), 0)
    refreshing = refreshing_of(store, tmp_path, holdout=0.2)
    refreshing.first_version(Streams(0))
    for round in (2, 3):
        items += add(store, range(100 * round, 100 * round + 30), round)
        assert refreshing.refresh(round, round, Streams(round)) is not None
    held = {x.comparison.id for x in items if is_held_out(x, 0.2)}
    assert held
    assert not held & (learnt[0] | learnt[1])
    assert held <= asked[0] | asked[1], "held-out labels of all rounds are among the questions"
    assert (asked[0] | asked[1]) - held, "and so are others"


def test_earlier_labels_are_taken_from_every_round_and_not_too_many(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_EARLIER", 30)
    refreshing = begun(store, tmp_path, holdout=0.2)
    refreshing.gate = GateConfig(use=False)
    for round in (2, 3):
        add(store, range(100 * round, 100 * round + 40), round)
        refreshing.refresh(round, round, Streams(0))
    add(store, range(400, 410), 4)
    material = refreshing.material(4, Streams(0))
    assert material is not None
    known = [*material.earlier, *material.earlier_held_out]
    assert len(known) <= 30
    counts = {number: sum(p.round == number for p in known) for number in (0, 2, 3)}
    assert min(counts.values()) >= 8
    assert {p.round for p in [*material.fresh, *material.fresh_held_out]} == {4}
    assert all(unseen_by(p.key, 2) is not None for p in material.earlier)


def test_answers_that_the_version_in_use_has_learnt_from(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]], refused: list[list[Stance]]
) -> None:
    refreshing = begun(store, tmp_path)
    prompts, responses = refreshing.labelled_answers(10, 1)
    assert len(prompts) == len(responses) == 20
    add(store, range(100, 110), 2)
    assert refreshing.labelled_answers(10, 1) == (prompts, responses), "labels of later rounds do not matter"
    everything = refreshing.labelled_answers(1000, 2)[1]
    assert len(everything) == 80, "nor do those that it does not know"
    refreshing.refresh(2, 5, Streams(0))
    assert refreshing.labelled_answers(1000, 2)[1] == everything


def test_labels_that_turn_round_are_refused_and_more_of_the_same_are_not(
    store: PreferenceStore, tmp_path: Path
) -> None:
    """The whole way with models that learn: GOOD is what people like, and then all at once what they do not."""
    refreshing = refreshing_of(store, tmp_path, holdout=0.2)
    refreshing.ensemble = toy_ensemble(3)
    refreshing.reward = toy_config(holdout=0.2, epochs=3, lr=1e-2)
    refreshing.config = RefreshConfig(old_per_new=1.0, comparisons=0, lr=1e-2, warmup_steps=2)
    _add_toys(store, 240, 0, honest=True)
    refreshing.first_version(Streams(0))
    assert (refreshing.holdout_accuracy() or NONE).value > 0.9
    _add_toys(store, 100, 2, honest=True)
    good = refreshing.refresh(2, 5, Streams(0))
    assert good is not None
    assert good.accepted, good.decision.reason
    _add_toys(store, 100, 3, honest=False)
    bad = refreshing.refresh(3, 9, Streams(0))
    assert bad is not None
    assert not bad.accepted
    assert refreshing.ensemble.version == 2
    assert (refreshing.holdout_accuracy() or NONE).value > 0.6, "most held-out labels are still honest ones"


def _add_toys(store: PreferenceStore, count: int, round: int, honest: bool) -> None:
    origin = Provenance("test", round, 0)
    for n, pair in enumerate(toy_pairs(count, seed=round)):
        a, b = (Response(f"{side}{n}", origin, tuple(side_ids)) for side, side_ids in (("a", pair.a), ("b", pair.b)))
        comparison = Comparison(f"r{round}-{n:05d}", "hello", a, b, round)
        likes_a = bool(pair.share_a) == honest
        store.add_comparisons([comparison])
        store.add_labels([Label(comparison.id, "someone", Choice.A if likes_a else Choice.B)])
