"""Refreshing: which labels are new, which are replayed, which never train; and what a version records."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from refreshed import PROMPTS, RESPONSES, add, is_held_out, numbers_of, refreshing_of
from toy_preferences import labelled, number_of

from holdfast.config.schema import RefreshConfig
from holdfast.errors import HoldfastError
from holdfast.preferences.comparison import Choice, Label
from holdfast.preferences.pair import Pair
from holdfast.preferences.store import PreferenceStore
from holdfast.randomness import Streams


def test_version_1_is_trained_on_every_label(store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]) -> None:
    add(store, range(10), 0)
    refreshing = refreshing_of(store, tmp_path)
    outcome = refreshing.first_version(Streams(0))
    assert numbers_of(trained[0]) == list(range(10))
    assert (outcome.version, outcome.labels, outcome.trained_on) == (1, 10, 10)
    assert (outcome.loss, outcome.train_accuracy, outcome.holdout_accuracy) == (0.5, 0.75, None)
    assert refreshing.versions.numbers() == [1]
    ensemble = refreshing.ensemble
    assert (ensemble.version, ensemble.labels, ensemble.watermark) == (1, 10, store.watermark())


def test_without_new_labels_there_is_no_refresh(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]
) -> None:
    add(store, range(10), 0)
    refreshing = refreshing_of(store, tmp_path)
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


class Heavier:
    """Weighs every label by its number."""

    def weighed(self, pairs: list[Pair]) -> list[Pair]:
        return [replace(p, weight=float(number_of(p))) for p in pairs]


def test_where_labels_are_weighed_for_the_policy_old_ones_are_reason_enough(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]
) -> None:
    refreshing = refreshing_of(store, tmp_path)
    refreshing.config = replace(refreshing.config, comparisons=1000)
    refreshing.importance = Heavier()  # type: ignore[assignment]
    assert refreshing.refresh(2, 5, Streams(0)) is None, "not even old ones are there"
    add(store, range(10), 0)
    refreshing.first_version(Streams(0))
    assert [p.weight for p in trained[0]] == [1.0] * 10, "the policy is still the reference"
    outcome = refreshing.refresh(2, 5, Streams(0))
    assert outcome is not None
    assert (outcome.version, outcome.trained_on, outcome.labels) == (2, 10, 10)
    assert {number_of(p): p.weight for p in trained[1]} == {n: float(n) for n in range(10)}


def test_only_labels_after_the_watermark_are_new(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]
) -> None:
    add(store, range(100), 0)
    refreshing = refreshing_of(store, tmp_path)
    refreshing.first_version(Streams(0))
    add(store, range(100, 106), 2)
    outcome = refreshing.refresh(2, 5, Streams(0))
    assert outcome is not None
    # 6 new ones and 2 old ones for each.
    old, fresh = trained[1][:-6], trained[1][-6:]
    assert numbers_of(fresh) == list(range(100, 106))
    assert len(old) == 12
    assert max(numbers_of(old)) < 100
    assert (outcome.version, outcome.labels, outcome.trained_on) == (2, 106, 18)
    assert (refreshing.last_round, refreshing.last_step) == (2, 5)
    assert refreshing.ensemble.watermark == store.watermark()
    assert refreshing.refresh(3, 9, Streams(0)) is None
    # Nothing of round 4 is new to a refresh in round 3.
    add(store, [200, 201], 4)
    assert refreshing.refresh(3, 9, Streams(0)) is None
    outcome = refreshing.refresh(4, 12, Streams(0))
    assert outcome is not None
    assert numbers_of(trained[2][-2:]) == [200, 201]
    assert {p.round for p in trained[2][:-2]} == {0, 2}, "replay reaches back over all rounds"


def test_a_late_answer_to_an_old_comparison_is_new(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]
) -> None:
    add(store, range(10), 0)
    waiting = labelled(55, 0)
    store.add_comparisons([waiting.comparison])
    refreshing = refreshing_of(store, tmp_path, old_per_new=0.0)
    refreshing.first_version(Streams(0))
    assert 55 not in numbers_of(trained[0])
    store.add_labels(list(waiting.labels))
    assert refreshing.refresh(2, 5, Streams(0)) is not None
    assert numbers_of(trained[1]) == [55]


def test_a_run_gone_back_to_an_earlier_checkpoint_sees_each_round_s_labels_as_new_again(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]
) -> None:
    """The store is ahead of the run: labels of rounds 2 and 3 are both there when round 2 is done again."""
    add(store, range(10), 0)
    refreshing = refreshing_of(store, tmp_path, old_per_new=0.0)
    refreshing.first_version(Streams(0))
    add(store, [11], 2)
    add(store, [22], 3)
    assert refreshing.refresh(2, 5, Streams(0)) is not None
    assert refreshing.refresh(3, 9, Streams(0)) is not None
    assert [numbers_of(pairs) for pairs in trained[1:]] == [[11], [22]]


def test_late_answers_do_not_hide_labels_of_rounds_done_again(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]
) -> None:
    """As before, but someone has answered a comparison of round 2 after those of round 3."""
    add(store, range(10), 0)
    refreshing = refreshing_of(store, tmp_path, old_per_new=0.0)
    refreshing.first_version(Streams(0))
    add(store, [22], 3)
    add(store, [11], 2)
    assert refreshing.refresh(2, 5, Streams(0)) is not None
    assert refreshing.refresh(3, 9, Streams(0)) is not None
    assert [numbers_of(pairs) for pairs in trained[1:]] == [[11], [22]]


def test_the_watermark_of_a_given_ensemble_hides_nothing(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]
) -> None:
    """An ensemble trained elsewhere carries the watermark of another store."""
    refreshing = refreshing_of(store, tmp_path)
    refreshing.ensemble.version, refreshing.ensemble.watermark = 1, 10**6
    add(store, range(5), 2)
    assert refreshing.refresh(2, 5, Streams(0)) is not None
    assert numbers_of(trained[0]) == list(range(5))


@pytest.mark.parametrize(("new", "trains_on"), [(10, 40), (36, 54)])
def test_older_comparisons_make_up_the_number_and_never_fall_below_their_share(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]], new: int, trains_on: int
) -> None:
    add(store, range(60), 0)
    refreshing = refreshing_of(store, tmp_path)
    refreshing.config = RefreshConfig(
        comparisons=40,
        old_per_new=0.5,
    )
    refreshing.first_version(Streams(0))
    add(store, range(100, 100 + new), 2)
    outcome = refreshing.refresh(2, 5, Streams(0))
    assert outcome is not None
    assert outcome.trained_on == trains_on
    assert len([n for n in numbers_of(trained[-1]) if n >= 100]) == new, "all that is new"


def test_held_out_comparisons_never_train(store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]) -> None:
    items = add(store, range(60), 0)
    refreshing = refreshing_of(store, tmp_path, holdout=0.3, old_per_new=99.0)
    outcome = refreshing.first_version(Streams(0))
    assert outcome.holdout_accuracy is not None
    for round in (2, 3, 4):
        items += add(store, range(100 * round, 100 * round + 30), round)
        refreshing.refresh(round, round, Streams(0))
    held = [x for x in items if is_held_out(x, 0.3)]
    train = [x for x in items if not is_held_out(x, 0.3)]
    held_numbers = {int(x.comparison.a.text[1:]) for x in held}
    assert len(held) > 20
    seen = {number_of(p) for pairs in trained for p in pairs}
    assert not seen & held_numbers
    assert seen == {int(x.comparison.a.text[1:]) for x in train}
    assert outcome.labels == 60, "they are labels all the same"


def test_only_held_out_comparisons_being_new_is_no_refresh(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]
) -> None:
    add(store, range(20), 0)
    refreshing = refreshing_of(store, tmp_path, holdout=0.3)
    refreshing.first_version(Streams(0))
    held = [n for n in range(100, 160) if is_held_out(labelled(n, 2), 0.3)]
    add(store, held, 2)
    assert refreshing.refresh(2, 5, Streams(0)) is None


def test_a_refresh_standardises_again_and_saves_that(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]
) -> None:
    add(store, range(10), 0)
    refreshing = refreshing_of(store, tmp_path)
    refreshing.first_version(Streams(0))
    first = refreshing.ensemble.means, refreshing.ensemble.sds
    add(store, [11], 2)
    refreshing.refresh(2, 5, Streams(0))
    assert (refreshing.ensemble.means, refreshing.ensemble.sds) != first
    scores_KB = refreshing.ensemble.scores(PROMPTS, RESPONSES)
    torch.testing.assert_close(scores_KB.mean(1), torch.zeros(2), atol=1e-4, rtol=0)
    torch.testing.assert_close(scores_KB.std(1, unbiased=False), torch.ones(2), atol=1e-4, rtol=0)
    refreshing.versions.load_into(refreshing.ensemble, 2)
    assert torch.equal(refreshing.ensemble.scores(PROMPTS, RESPONSES), scores_KB)


def test_holdout_accuracy_by_hand(store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]) -> None:
    items = add(store, range(40), 0)
    refreshing = refreshing_of(store, tmp_path, holdout=0.5)
    outcome = refreshing.first_version(Streams(0))
    held = [x for x in items if is_held_out(x, 0.5)]
    prompt = refreshing.codec.encode_prompt("hello")
    prompts = [prompt] * len(held)
    a_KP = refreshing.ensemble.scores(prompts, [list(x.comparison.a.token_ids or ()) for x in held])
    b_KP = refreshing.ensemble.scores(prompts, [list(x.comparison.b.token_ids or ()) for x in held])
    # Every label says a.
    right = float((a_KP.mean(0) > b_KP.mean(0)).float().mean())
    assert outcome.holdout_accuracy == pytest.approx(right)
    measured = refreshing.holdout_accuracy()
    assert measured is not None
    assert measured.value == pytest.approx(right)
    assert measured.count == outcome.held_out == 26


def test_a_changed_mind_counts_with_its_newest_answer(
    store: PreferenceStore, tmp_path: Path, trained: list[list[Pair]]
) -> None:
    items = add(store, range(4), 0)
    store.add_labels([Label(items[2].comparison.id, "someone", Choice.B)])
    refreshing_of(store, tmp_path).first_version(Streams(0))
    assert [p.share_a for p in sorted(trained[0], key=number_of)] == [1.0, 1.0, 0.0, 1.0]


def test_too_few_labels_are_refused(store: PreferenceStore, tmp_path: Path) -> None:
    add(store, [1], 0)
    with pytest.raises(HoldfastError, match=r"at least 2 labelled comparisons.* label more"):
        refreshing_of(store, tmp_path).first_version(Streams(0))


def test_a_real_refresh_changes_the_weights_and_repeats_bit_for_bit(store: PreferenceStore, tmp_path: Path) -> None:
    add(store, range(12), 0)
    add(store, range(20, 26), 2)
    states = []
    for name in ("one", "two"):
        refreshing = refreshing_of(store, tmp_path / name)
        streams = Streams(3)
        refreshing.first_version(streams)
        before = refreshing.ensemble.members[0].head.weight.clone()
        refreshing.ensemble.watermark = 12
        assert refreshing.refresh(2, 5, streams) is not None
        assert not torch.equal(refreshing.ensemble.members[0].head.weight, before)
        states.append([p.clone() for m in refreshing.ensemble.members for p in m.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*states, strict=True))


# --- the gate ---------------------------------------------------------------------------------------------------
