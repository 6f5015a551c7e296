"""Refreshing: which labels are new, which are replayed, which never train; and what a version records."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from toy_preferences import labelled, number_of, reference_answers, toy_config, toy_ensemble, toy_pairs

from holdfast import refreshing as module
from holdfast.config.schema import GateConfig, RefreshConfig
from holdfast.errors import HoldfastError
from holdfast.models.codec import Codec
from holdfast.models.reward_model import RewardModel, trunk_of
from holdfast.models.tiny import word_tokenizer
from holdfast.preferences.store import PreferenceStore
from holdfast.preferences.types import Choice, Comparison, Label, LabelledComparison, Provenance, Response
from holdfast.randomness import Streams
from holdfast.refreshing import Refreshing
from holdfast.reward import training
from holdfast.reward.ensemble import Ensemble, VersionStore
from holdfast.reward.evidence import Judged
from holdfast.reward.examining import Question
from holdfast.reward.gate import Decision
from holdfast.reward.replay import holdout_place
from holdfast.reward.training import Fit, Pair, unseen_by
from holdfast.track.progress import Silent
from tiny_models import PAD, build

PROMPTS, RESPONSES = reference_answers(20)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PreferenceStore]:
    with PreferenceStore.open(f"sqlite:///{tmp_path / 'run.db'}") as store:
        yield store


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[list[Pair]]:
    """The pairs of every fit; the fit itself only scales the members, enough to show standardising."""
    fits: list[list[Pair]] = []

    def fit(ensemble: Ensemble, pairs: Sequence[Pair], *_rest: object) -> Fit:
        fits.append(list(pairs))
        with torch.no_grad():
            for member in ensemble.members:
                member.head.weight.mul_(2.0)
                member.head.bias.add_(3.0)
        return Fit(0.5, 0.75, 1)

    monkeypatch.setattr(module, "fit_ensemble", fit)
    return fits


def _refreshing(store: PreferenceStore, tmp_path: Path, holdout: float = 0.0, old_per_new: float = 2.0) -> Refreshing:
    lm = build("llama")
    codec = Codec(word_tokenizer(["hello"]))
    return Refreshing(
        Ensemble([RewardModel(trunk_of(lm), k) for k in range(2)], PAD, 4096),
        VersionStore(tmp_path / "rewards"), store, codec, toy_config(holdout=holdout, epochs=1, bootstrap="subsample"),
        RefreshConfig(old_per_new=old_per_new, comparisons=0, epochs=1), PROMPTS, RESPONSES, Silent(),
        GateConfig(use=True, tolerance=0.05, level=0.1, failed="keep"),
    )  # fmt: skip


def _add(store: PreferenceStore, numbers: Sequence[int], round: int) -> list[LabelledComparison]:
    items = [labelled(n, round) for n in numbers]
    store.add_comparisons([x.comparison for x in items])
    store.add_labels([label for x in items for label in x.labels])
    return items


def _held_out(item: LabelledComparison, share: float) -> bool:
    return holdout_place(item.comparison.id) < share


def _numbers(pairs: Sequence[Pair]) -> list[int]:
    return sorted(number_of(p) for p in pairs)


def test_version_1_is_trained_on_every_label(store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]) -> None:
    _add(store, range(10), 0)
    refreshing = _refreshing(store, tmp_path)
    outcome = refreshing.first_version(Streams(0))
    assert _numbers(trained[0]) == list(range(10))
    assert (outcome.version, outcome.labels, outcome.trained_on) == (1, 10, 10)
    assert (outcome.loss, outcome.train_accuracy, outcome.holdout_accuracy) == (0.5, 0.75, None)
    assert refreshing.versions.numbers() == [1]
    ensemble = refreshing.ensemble
    assert (ensemble.version, ensemble.labels, ensemble.watermark) == (1, 10, store.watermark())


def test_without_new_labels_there_is_no_refresh(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]
) -> None:
    _add(store, range(10), 0)
    refreshing = _refreshing(store, tmp_path)
    refreshing.first_version(Streams(0))
    weights = [p.clone() for m in refreshing.ensemble.members for p in m.parameters()]
    streams, before = Streams(0), refreshing.last_round
    assert refreshing.refresh(2, 5, streams) is None
    assert len(trained) == 1
    assert refreshing.ensemble.version == 1
    assert 2 not in refreshing.versions.numbers()
    assert (refreshing.last_round, refreshing.last_step) == (before, 0)
    assert streams.state() == {}, "nothing was drawn"
    after = [p for m in refreshing.ensemble.members for p in m.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(weights, after, strict=True))


def test_only_labels_after_the_watermark_are_new(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]
) -> None:
    _add(store, range(100), 0)
    refreshing = _refreshing(store, tmp_path)
    refreshing.first_version(Streams(0))
    _add(store, range(100, 106), 2)
    outcome = refreshing.refresh(2, 5, Streams(0))
    assert outcome is not None
    # 6 new ones and 2 old ones for each.
    old, fresh = trained[1][:-6], trained[1][-6:]
    assert _numbers(fresh) == list(range(100, 106))
    assert len(old) == 12
    assert max(_numbers(old)) < 100
    assert (outcome.version, outcome.labels, outcome.trained_on) == (2, 106, 18)
    assert (refreshing.last_round, refreshing.last_step) == (2, 5)
    assert refreshing.ensemble.watermark == store.watermark()
    assert refreshing.refresh(3, 9, Streams(0)) is None
    # Nothing of round 4 is new to a refresh in round 3.
    _add(store, [200, 201], 4)
    assert refreshing.refresh(3, 9, Streams(0)) is None
    outcome = refreshing.refresh(4, 12, Streams(0))
    assert outcome is not None
    assert _numbers(trained[2][-2:]) == [200, 201]
    assert {p.round for p in trained[2][:-2]} == {0, 2}, "replay reaches back over all rounds"


def test_a_late_answer_to_an_old_comparison_is_new(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]
) -> None:
    _add(store, range(10), 0)
    waiting = labelled(55, 0)
    store.add_comparisons([waiting.comparison])
    refreshing = _refreshing(store, tmp_path, old_per_new=0.0)
    refreshing.first_version(Streams(0))
    assert 55 not in _numbers(trained[0])
    store.add_labels(list(waiting.labels))
    assert refreshing.refresh(2, 5, Streams(0)) is not None
    assert _numbers(trained[1]) == [55]


def test_a_run_gone_back_to_an_earlier_checkpoint_sees_each_round_s_labels_as_new_again(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]
) -> None:
    """The store is ahead of the run: labels of rounds 2 and 3 are both there when round 2 is done again."""
    _add(store, range(10), 0)
    refreshing = _refreshing(store, tmp_path, old_per_new=0.0)
    refreshing.first_version(Streams(0))
    _add(store, [11], 2)
    _add(store, [22], 3)
    assert refreshing.refresh(2, 5, Streams(0)) is not None
    assert refreshing.refresh(3, 9, Streams(0)) is not None
    assert [_numbers(pairs) for pairs in trained[1:]] == [[11], [22]]


def test_late_answers_do_not_hide_labels_of_rounds_done_again(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]
) -> None:
    """As before, but someone has answered a comparison of round 2 after those of round 3."""
    _add(store, range(10), 0)
    refreshing = _refreshing(store, tmp_path, old_per_new=0.0)
    refreshing.first_version(Streams(0))
    _add(store, [22], 3)
    _add(store, [11], 2)
    assert refreshing.refresh(2, 5, Streams(0)) is not None
    assert refreshing.refresh(3, 9, Streams(0)) is not None
    assert [_numbers(pairs) for pairs in trained[1:]] == [[11], [22]]


def test_the_watermark_of_a_given_ensemble_hides_nothing(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]
) -> None:
    """An ensemble trained elsewhere carries the watermark of another store."""
    refreshing = _refreshing(store, tmp_path)
    refreshing.ensemble.version, refreshing.ensemble.watermark = 1, 10**6
    _add(store, range(5), 2)
    assert refreshing.refresh(2, 5, Streams(0)) is not None
    assert _numbers(trained[0]) == list(range(5))


@pytest.mark.parametrize(("new", "trains_on"), [(10, 40), (36, 54)])
def test_older_comparisons_make_up_the_number_and_never_fall_below_their_share(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]], new: int, trains_on: int
) -> None:
    _add(store, range(60), 0)
    refreshing = _refreshing(store, tmp_path)
    refreshing.config = RefreshConfig(comparisons=40, old_per_new=0.5, epochs=1)
    refreshing.first_version(Streams(0))
    _add(store, range(100, 100 + new), 2)
    outcome = refreshing.refresh(2, 5, Streams(0))
    assert outcome is not None
    assert outcome.trained_on == trains_on
    assert len([n for n in _numbers(trained[-1]) if n >= 100]) == new, "all that is new"


def test_held_out_comparisons_never_train(store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]) -> None:
    items = _add(store, range(60), 0)
    refreshing = _refreshing(store, tmp_path, holdout=0.3, old_per_new=99.0)
    outcome = refreshing.first_version(Streams(0))
    assert outcome.holdout_accuracy is not None
    for round in (2, 3, 4):
        items += _add(store, range(100 * round, 100 * round + 30), round)
        refreshing.refresh(round, round, Streams(0))
    held = [x for x in items if _held_out(x, 0.3)]
    train = [x for x in items if not _held_out(x, 0.3)]
    held_numbers = {int(x.comparison.a.text[1:]) for x in held}
    assert len(held) > 20
    seen = {number_of(p) for pairs in trained for p in pairs}
    assert not seen & held_numbers
    assert seen == {int(x.comparison.a.text[1:]) for x in train}
    assert outcome.labels == 60, "they are labels all the same"


def test_only_held_out_comparisons_being_new_is_no_refresh(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]
) -> None:
    _add(store, range(20), 0)
    refreshing = _refreshing(store, tmp_path, holdout=0.3)
    refreshing.first_version(Streams(0))
    held = [n for n in range(100, 160) if _held_out(labelled(n, 2), 0.3)]
    _add(store, held, 2)
    assert refreshing.refresh(2, 5, Streams(0)) is None


def test_a_refresh_standardises_again_and_saves_that(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]
) -> None:
    _add(store, range(10), 0)
    refreshing = _refreshing(store, tmp_path)
    refreshing.first_version(Streams(0))
    first = refreshing.ensemble.means, refreshing.ensemble.sds
    _add(store, [11], 2)
    refreshing.refresh(2, 5, Streams(0))
    assert (refreshing.ensemble.means, refreshing.ensemble.sds) != first
    scores_KB = refreshing.ensemble.scores(PROMPTS, RESPONSES)
    torch.testing.assert_close(scores_KB.mean(1), torch.zeros(2), atol=1e-4, rtol=0)
    torch.testing.assert_close(scores_KB.std(1, unbiased=False), torch.ones(2), atol=1e-4, rtol=0)
    refreshing.versions.load_into(refreshing.ensemble, 2)
    assert torch.equal(refreshing.ensemble.scores(PROMPTS, RESPONSES), scores_KB)


def test_holdout_accuracy_by_hand(store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]) -> None:
    items = _add(store, range(40), 0)
    refreshing = _refreshing(store, tmp_path, holdout=0.5)
    outcome = refreshing.first_version(Streams(0))
    held = [x for x in items if _held_out(x, 0.5)]
    prompt = refreshing.codec.encode_prompt("hello")
    prompts = [prompt] * len(held)
    a_KP = refreshing.ensemble.scores(prompts, [list(x.comparison.a.token_ids or ()) for x in held])
    b_KP = refreshing.ensemble.scores(prompts, [list(x.comparison.b.token_ids or ()) for x in held])
    # Every label says a.
    right = float((a_KP.mean(0) > b_KP.mean(0)).float().mean())
    assert outcome.holdout_accuracy == pytest.approx(right)
    assert refreshing.holdout_accuracy() == pytest.approx(right)


def test_a_changed_mind_counts_with_its_newest_answer(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]
) -> None:
    items = _add(store, range(4), 0)
    store.add_labels([Label(items[2].comparison.id, "someone", Choice.B)])
    _refreshing(store, tmp_path).first_version(Streams(0))
    assert [p.share_a for p in sorted(trained[0], key=number_of)] == [1.0, 1.0, 0.0, 1.0]


def test_too_few_labels_are_refused(store: PreferenceStore, tmp_path: Path) -> None:
    _add(store, [1], 0)
    with pytest.raises(HoldfastError, match=r"at least 2 labelled comparisons.* label more"):
        _refreshing(store, tmp_path).first_version(Streams(0))


def test_a_real_refresh_changes_the_weights_and_repeats_bit_for_bit(store: PreferenceStore, tmp_path: Path) -> None:
    _add(store, range(12), 0)
    _add(store, range(20, 26), 2)
    states = []
    for name in ("one", "two"):
        refreshing = _refreshing(store, tmp_path / name)
        streams = Streams(3)
        refreshing.first_version(streams)
        before = refreshing.ensemble.members[0].head.weight.clone()
        refreshing.ensemble.watermark = 12
        assert refreshing.refresh(2, 5, streams) is not None
        assert not torch.equal(refreshing.ensemble.members[0].head.weight, before)
        states.append([p.clone() for m in refreshing.ensemble.members for p in m.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*states, strict=True))


# --- the gate ---------------------------------------------------------------------------------------------------


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[list[Judged]]:
    """A gate that lets nothing in; what it was shown."""
    shown: list[list[Judged]] = []

    def decide(judged: Sequence[Judged], *_rest: object) -> Decision:
        shown.append(list(judged))
        return Decision(False, "not today")

    monkeypatch.setattr(module, "decide", decide)
    return shown


def _weights(ensemble: Ensemble) -> list[torch.Tensor]:
    return [p.clone() for m in ensemble.members for p in m.parameters()]


def _same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def _begun(store: PreferenceStore, tmp_path: Path, holdout: float = 0.0) -> Refreshing:
    _add(store, range(40), 0)
    refreshing = _refreshing(store, tmp_path, holdout)
    refreshing.first_version(Streams(0))
    return refreshing


def test_a_refused_candidate_is_saved_and_the_version_in_use_stays_bit_for_bit(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]], refused: list[list[Judged]]
) -> None:
    refreshing = _begun(store, tmp_path)
    ensemble = refreshing.ensemble
    before, scores_KB, watermark = _weights(ensemble), ensemble.scores(PROMPTS, RESPONSES), ensemble.watermark
    _add(store, range(100, 110), 2)
    outcome = refreshing.refresh(2, 5, Streams(0))
    assert outcome is not None
    assert (outcome.accepted, outcome.version, outcome.in_use, outcome.decision.reason) == (False, 2, 1, "not today")
    assert _same(_weights(ensemble), before)
    assert torch.equal(ensemble.scores(PROMPTS, RESPONSES), scores_KB)
    assert (ensemble.version, ensemble.labels, ensemble.watermark) == (1, 40, watermark)
    assert refreshing.versions.numbers() == [1, 2]
    refreshing.versions.load_newest_into(ensemble)
    assert ensemble.version == 1
    refreshing.versions.load_into(ensemble, 2)
    assert not _same(_weights(ensemble), before), "what was refused can be looked at"


def test_what_was_refused_is_still_new_and_still_due(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]], refused: list[list[Judged]]
) -> None:
    refreshing = _begun(store, tmp_path)
    refreshing.settled = True
    _add(store, range(100, 110), 2)
    refreshing.refresh(2, 5, Streams(0))
    assert (refreshing.last_round, refreshing.last_step, refreshing.settled) == (1, 0, True)
    _add(store, range(200, 210), 3)
    outcome = refreshing.refresh(3, 9, Streams(0))
    assert outcome is not None
    assert outcome.version == 3
    assert _numbers(trained[2][-20:]) == [*range(100, 110), *range(200, 210)]
    assert sum(j.fresh for j in refused[1]) == 20


def test_an_accepted_candidate_is_used(store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]) -> None:
    refreshing = _begun(store, tmp_path)
    _add(store, range(100, 108), 2)
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
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]], refused: list[list[Judged]]
) -> None:
    refreshing = _begun(store, tmp_path)
    refreshing.gate = GateConfig(use=False)
    _add(store, range(100, 110), 2)
    outcome = refreshing.refresh(2, 5, Streams(0))
    assert outcome is not None
    assert (outcome.accepted, outcome.in_use, outcome.decision.checks) == (True, 2, ())
    assert refused == []


def test_a_refused_candidate_may_join_half_way(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]], refused: list[list[Judged]]
) -> None:
    refreshing = _begun(store, tmp_path)
    refreshing.gate = GateConfig(use=True, failed="join")
    weight = refreshing.ensemble.members[0].head.weight.clone()
    _add(store, range(100, 110), 2)
    outcome = refreshing.refresh(2, 5, Streams(0))
    assert outcome is not None
    assert (outcome.accepted, outcome.version, outcome.in_use) == (False, 2, 3)
    # The fake fit doubles the weight; half-way is one and a half times.
    torch.testing.assert_close(refreshing.ensemble.members[0].head.weight, 1.5 * weight)
    scores_KB = refreshing.ensemble.scores(PROMPTS, RESPONSES)
    torch.testing.assert_close(scores_KB.mean(1), torch.zeros(2), atol=1e-4, rtol=0)
    assert refreshing.versions.numbers() == [1, 2, 3]
    assert (refreshing.last_round, refreshing.last_step) == (2, 5)
    refreshing.versions.load_newest_into(refreshing.ensemble)
    assert refreshing.ensemble.version == 3


def test_a_round_done_again_makes_the_same_version_and_a_rolled_back_run_a_new_one(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]
) -> None:
    refreshing = _begun(store, tmp_path)
    _add(store, range(100, 108), 2)
    first = refreshing.ensemble.keep()

    def back_to_version_1() -> None:
        refreshing.ensemble.take(first)
        refreshing.last_round, refreshing.last_step = 1, 0

    refreshing.refresh(2, 5, Streams(0))
    weights, saved = _weights(refreshing.ensemble), refreshing.ensemble.keep()
    # Killed before the checkpoint was written, and resumed from the one before.
    back_to_version_1()
    refreshing.refresh(2, 5, Streams(0))
    assert refreshing.versions.numbers() == [1, 2]
    assert _same(_weights(refreshing.ensemble), weights)
    assert (refreshing.ensemble.version, refreshing.ensemble.means) == (saved.number, saved.means)
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

    def learning(k: int, ensemble: Ensemble, pairs: Sequence[Pair], kind: str) -> Sequence[Pair]:
        share = labels_for(k, ensemble, pairs, kind)
        learnt[k] |= {p.key for p in share}
        return share

    def asking(ensemble: Ensemble, questions: Sequence[Question]) -> list[float]:
        for q in questions:
            assert q.pair.key not in learnt[q.member]
            asked[q.member].add(q.pair.key)
        return log_odds(ensemble, questions)

    monkeypatch.setattr(training, "labels_for", learning)
    monkeypatch.setattr(module, "log_odds", asking)
    monkeypatch.setattr(module, "decide", lambda *_: Decision(True, "come in"))
    items = _add(store, range(60), 0)
    refreshing = _refreshing(store, tmp_path, holdout=0.2)
    refreshing.first_version(Streams(0))
    for round in (2, 3):
        items += _add(store, range(100 * round, 100 * round + 30), round)
        assert refreshing.refresh(round, round, Streams(round)) is not None
    held = {x.comparison.id for x in items if _held_out(x, 0.2)}
    assert held
    assert not held & (learnt[0] | learnt[1])
    assert held <= asked[0] | asked[1], "held-out labels of all rounds are among the questions"
    assert (asked[0] | asked[1]) - held, "and so are others"


def test_earlier_labels_are_taken_from_every_round_and_not_too_many(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_EARLIER", 30)
    refreshing = _begun(store, tmp_path, holdout=0.2)
    refreshing.gate = GateConfig(use=False)
    for round in (2, 3):
        _add(store, range(100 * round, 100 * round + 40), round)
        refreshing.refresh(round, round, Streams(0))
    _add(store, range(400, 410), 4)
    material = refreshing.material(4, Streams(0))
    assert material is not None
    known = [*material.earlier, *material.earlier_held_out]
    assert len(known) <= 30
    counts = {number: sum(p.round == number for p in known) for number in (0, 2, 3)}
    assert min(counts.values()) >= 8
    assert {p.round for p in [*material.fresh, *material.fresh_held_out]} == {4}
    assert all(unseen_by(p.key, 2, "subsample") is not None for p in material.earlier)


def test_answers_that_the_version_in_use_has_learnt_from(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]], refused: list[list[Judged]]
) -> None:
    refreshing = _begun(store, tmp_path)
    prompts, responses = refreshing.labelled_answers(10, 1)
    assert len(prompts) == len(responses) == 20
    _add(store, range(100, 110), 2)
    assert refreshing.labelled_answers(10, 1) == (prompts, responses), "labels of later rounds do not matter"
    everything = refreshing.labelled_answers(1000, 2)[1]
    assert len(everything) == 80, "nor do those that it does not know"
    refreshing.refresh(2, 5, Streams(0))
    assert refreshing.labelled_answers(1000, 2)[1] == everything


def test_labels_that_turn_round_are_refused_and_more_of_the_same_are_not(
    store: PreferenceStore, tmp_path: Path
) -> None:
    """The whole way with models that learn: GOOD is what people like, and then all at once what they do not."""
    refreshing = _refreshing(store, tmp_path, holdout=0.2)
    refreshing.ensemble = toy_ensemble(3)
    refreshing.reward = toy_config(holdout=0.2, epochs=3, lr=1e-2, bootstrap="subsample")
    refreshing.config = RefreshConfig(old_per_new=1.0, comparisons=0, epochs=2, lr=1e-2, warmup_steps=2)
    _add_toys(store, 240, 0, honest=True)
    refreshing.first_version(Streams(0))
    assert (refreshing.holdout_accuracy() or 0.0) > 0.9
    _add_toys(store, 100, 2, honest=True)
    good = refreshing.refresh(2, 5, Streams(0))
    assert good is not None
    assert good.accepted, good.decision.reason
    _add_toys(store, 100, 3, honest=False)
    bad = refreshing.refresh(3, 9, Streams(0))
    assert bad is not None
    assert not bad.accepted
    assert refreshing.ensemble.version == 2
    assert (refreshing.holdout_accuracy() or 0.0) > 0.6, "most held-out labels are still honest ones"


def _add_toys(store: PreferenceStore, count: int, round: int, honest: bool) -> None:
    origin = Provenance("test", round, 0)
    for n, pair in enumerate(toy_pairs(count, seed=round)):
        a, b = (Response(f"{side}{n}", origin, tuple(side_ids)) for side, side_ids in (("a", pair.a), ("b", pair.b)))
        comparison = Comparison(f"r{round}-{n:05d}", "hello", a, b, round)
        likes_a = bool(pair.share_a) == honest
        store.add_comparisons([comparison])
        store.add_labels([Label(comparison.id, "someone", Choice.A if likes_a else Choice.B)])
