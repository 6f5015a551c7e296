"""Comparisons that are asked again: which, how they are told apart, and what they say about the labels."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from toy_preferences import labelled, reference_answers, toy_config, toy_ensemble

from holdfast.config.schema import GateConfig, RefreshConfig
from holdfast.models.codec import Codec
from holdfast.models.tiny import word_tokenizer
from holdfast.preferences.comparison import Choice, Comparison, Label
from holdfast.preferences.pair import Pair
from holdfast.preferences.store import PreferenceStore
from holdfast.randomness import Streams
from holdfast.reward.ensemble import VersionStore
from holdfast.reward.labelcheck import FEWEST_EARLIER, flips
from holdfast.reward.refresher import Refresher
from holdfast.reward.repeats import Repeats, as_before, repeat_of, surest
from holdfast.track.progress import Silent

Prepared = tuple[PreferenceStore, Refresher]


@pytest.fixture
def prepared(tmp_path: Path) -> Iterator[Prepared]:
    """A store with 40 answered comparisons, and an ensemble of three that has learnt from them."""
    with PreferenceStore.open(f"sqlite:///{tmp_path / 'run.db'}") as store:
        items = [labelled(n, 0) for n in range(40)]
        store.add_comparisons([x.comparison for x in items])
        store.add_labels([label for x in items for label in x.labels])
        refreshing = Refresher(
            toy_ensemble(3), VersionStore(tmp_path / "rewards"), store, Codec(word_tokenizer(["hello"])),
            toy_config(holdout=0.1, epochs=1), RefreshConfig(lr=5e-4),
            *reference_answers(20), Silent(), GateConfig(use=True, repeats=6),
        )  # fmt: skip
        refreshing.first_version(Streams(0))
        yield store, refreshing


def answer(store: PreferenceStore, asked: list[Comparison], flip: bool = False) -> None:
    store.add_comparisons(asked)
    originals = {x.comparison.id: x for x in store.labelled()}
    first = [originals[str(c.repeats)].labels[0].choice for c in asked]
    choices = [choice.swap() if flip else choice for choice in first]
    store.add_labels([Label(c.id, "anna", choice) for c, choice in zip(asked, choices, strict=True)])


def test_a_repeat_is_the_same_question_under_a_name_that_leads_back() -> None:
    first = labelled(3, 0).comparison
    again = repeat_of(first, 4)
    assert (again.prompt, again.a, again.b) == (first.prompt, first.a, first.b)
    assert (again.round, again.purpose, again.repeats) == (4, "repeat", first.id)


def test_a_repeat_belongs_to_the_run_that_asks_again() -> None:
    keys = "w-0/ppo", "w-0/ppo-2"
    ours, theirs = (replace(labelled(3, 0).comparison, id=f"{key}/r0002-00001", run=key) for key in keys)
    for first in (ours, theirs):
        for key in keys:
            again = repeat_of(first, 4, key)
            assert (again.repeats, again.run) == (first.id, key)
    assert repeat_of(ours, 4, "w-0/ppo").id != repeat_of(ours, 4, "w-0/ppo-2").id, "both may ask, each for itself"
    assert repeat_of(ours, 4, "w-0/ppo").id == "w-0/ppo/r0002-00001/again-r0004"
    assert repeat_of(theirs, 4, "w-0/ppo").id == "w-0/ppo-2/r0002-00001/again-r0004-w-0/ppo"


def test_the_surest_are_those_on_which_people_and_the_member_agree() -> None:
    pairs = [Pair([1], [2], [3], share, 0, key) for share, key in [(1, "a"), (1, "b"), (0, "c"), (0, "d"), (0.5, "e")]]
    margins = torch.tensor([2.0, -9.0, -3.0, -1.0, 8.0])
    assert surest(pairs, margins, 2) == ["c", "a"]
    assert surest(pairs, margins, 9) == ["c", "a", "d"]


@pytest.mark.parametrize(("first", "again", "same"), [(1, 1, 1), (1, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0.5, 0.5)])
def test_answered_as_before(first: float, again: float, same: float) -> None:
    assert as_before(first, again) == same


def test_repeats_are_asked_once_in_a_round_and_never_train(prepared: Prepared) -> None:
    store, refreshing = prepared
    labels = refreshing.answered.labels()
    asked = refreshing.to_repeat(2, seed=7)
    assert len(asked) == 6
    assert asked == refreshing.to_repeat(2, seed=7), "a round done again asks the same"
    answer(store, asked)
    assert refreshing.refresh(2, 6, Streams(0)) is None, "they are nothing new to learn from"
    assert refreshing.answered.labels() == labels, "nor do they count as labels"


def test_nothing_is_asked_again_where_no_gate_wants_it(prepared: Prepared) -> None:
    _, refreshing = prepared
    refreshing.gate = GateConfig(use=False, repeats=6)
    assert refreshing.to_repeat(2, seed=7) == []


def test_what_came_of_them_is_known_apart_for_old_rounds_and_new_ones(prepared: Prepared) -> None:
    store, refreshing = prepared
    answer(store, refreshing.to_repeat(0, seed=7))
    answer(store, refreshing.to_repeat(2, seed=7), flip=True)
    refreshing.answered.update()
    assert refreshing.repeats(2) == Repeats(same=0, asked=6, same_before=6, asked_before=6)
    assert refreshing.repeats(1) == Repeats(0, 0, 6, 6), "later rounds have not been yet"


def test_a_first_answer_that_was_changed_to_a_tie_says_nothing(prepared: Prepared) -> None:
    store, refreshing = prepared
    asked = refreshing.to_repeat(2, seed=7)
    answer(store, asked)
    store.add_labels([Label(str(asked[0].repeats), "someone", Choice.TIE)])
    refreshing.answered.update()
    assert (refreshing.repeats(2).same, refreshing.repeats(2).asked) == (5, 5)


def test_the_share_of_flips_that_repeats_show() -> None:
    """By hand: 89 of 98 before makes p = 90/100 and t = 0.8; 45 of 60 now is 9 too few.

    f = 0.8 (54 - 45) / (60 * 0.64) = 0.1875;  var = 0.09 / (60 * 0.64) + 0.09 / (98 * 0.64)
    """
    share, error = flips([], Repeats(same=45, asked=60, same_before=89, asked_before=98))
    assert share == pytest.approx(0.1875)
    assert error == pytest.approx((0.09 / 38.4 + 0.09 / (98 * 0.64)) ** 0.5)


def test_a_quarter_flipped_is_found_and_honest_answers_are_not() -> None:
    """Easy questions are answered as before 9 times in 10; flipping a quarter leaves 7 in 10."""
    rng = torch.Generator().manual_seed(3)

    def z(rate: float) -> float:
        same = torch.rand(2, 60, generator=rng)
        before, now = float((same[0] < 0.9).sum()) * 3, float((same[1] < rate).sum())
        share, error = flips([], Repeats(now, 60, before, 180))
        return share / error

    honest, flipped = [z(0.9) for _ in range(400)], [z(0.7) for _ in range(400)]
    assert sum(value > 1.64 for value in honest) / 400 < 0.1
    assert sum(value > 1.64 for value in flipped) / 400 > 0.9


def test_too_few_earlier_repeats_say_nothing() -> None:
    assert flips([], Repeats(0, 60, 10, FEWEST_EARLIER - 1))[0] == 0.0
