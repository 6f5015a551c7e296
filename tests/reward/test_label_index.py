"""The index of what has been answered says what reading the whole store again would say."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from toy_preferences import labelled

from holdfast.preferences.comparison import Choice, Label
from holdfast.preferences.store import PreferenceStore
from holdfast.reward.label_index import Answered
from holdfast.reward.replay import holdout_place

SHARE = 0.3


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PreferenceStore]:
    with PreferenceStore.open(f"sqlite:///{tmp_path / 'run.db'}") as store:
        yield store


def _ids(store: PreferenceStore, up_to_round: int, watermark: int | None = None) -> list[str]:
    return [item.comparison.id for item in store.labelled(up_to_round, watermark)]


def _check(answered: Answered, store: PreferenceStore, up_to: int, known_round: int, watermark: int) -> None:
    everything = store.labelled(up_to)
    known = set(_ids(store, known_round, watermark))
    train = [item for item in everything if holdout_place(item.comparison.id) >= SHARE]
    old, fresh = answered.old_and_fresh(up_to, known_round, watermark)
    assert fresh == [item.comparison.id for item in train if item.comparison.id not in known]
    by_round: dict[int, list[str]] = {}
    for item in train:
        if item.comparison.id in known:
            by_round.setdefault(item.comparison.round, []).append(item.comparison.id)
    assert [ids for ids in old if ids] == [ids for _, ids in sorted(by_round.items())]
    held = [item.comparison.id for item in everything if holdout_place(item.comparison.id) < SHARE]
    assert answered.held_out(10**6, up_to) == held
    apart = {item.comparison.id for item in everything if item.comparison.id in held}
    assert set(answered.held_out_fresh(10**6, up_to, known_round, watermark)) == apart - known
    of_rounds = answered.held_out_known(10**6, up_to, known_round, watermark)
    assert {key for ids in of_rounds.values() for key in ids} == apart & known
    assert len(of_rounds) == len(old), "one entry for each round that a version may know"
    assert all(len(ids) <= 2 for ids in answered.held_out_known(2, up_to, known_round, watermark).values())
    assert answered.labels(up_to) == sum(len(item.labels) for item in everything)


@pytest.mark.parametrize("seed", range(4))
def test_the_index_agrees_with_the_store_whatever_order_labels_come_in(store: PreferenceStore, seed: int) -> None:
    rng = random.Random(seed)
    items = [labelled(n, rng.randrange(6)) for n in range(120)]
    store.add_comparisons([item.comparison for item in items])
    one_go = rng.sample(items, 90)
    answered = Answered(store, SHARE)
    marks = [0]
    for start in range(0, 90, 15):
        names = ["anna", "ben", "chen"]
        batch = [
            Label(x.comparison.id, rng.choice(names), rng.choice(list(Choice))) for x in one_go[start : start + 15]
        ]
        # Someone changes their mind, and someone else answers what was answered before.
        batch += [Label(x.comparison.id, rng.choice(names), rng.choice(list(Choice))) for x in rng.sample(one_go, 3)]
        store.add_labels(batch)
        marks.append(store.watermark())
        answered.update()
        assert answered.watermark == store.watermark()
        for _ in range(6):
            _check(answered, store, rng.randrange(7), rng.randrange(7), rng.choice([*marks, 10**6]))
    late = Answered(store, SHARE)
    late.update()
    _check(late, store, 5, 3, marks[3])
    assert late.old_and_fresh(5, 3, marks[3]) == answered.old_and_fresh(5, 3, marks[3])


def test_labels_are_read_once(store: PreferenceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    first_answers = PreferenceStore.first_answers

    def counted(self: PreferenceStore, after: int, up_to: int) -> list[object]:
        page = first_answers(self, after, up_to)
        read.append(len(page))
        return list(page)

    monkeypatch.setattr(PreferenceStore, "first_answers", counted)
    answered = Answered(store, SHARE)
    for start in (0, 50, 60):
        items = [labelled(n, start) for n in range(start, start + 10)]
        store.add_comparisons([item.comparison for item in items])
        store.add_labels([label for item in items for label in item.labels])
        answered.update()
    assert sum(read) == 30


def test_of_many_held_out_comparisons_the_same_ones_are_measured(store: PreferenceStore) -> None:
    answered = Answered(store, 1.0)
    seen: list[set[str]] = []
    for start in (0, 100, 200):
        items = [labelled(n, start) for n in range(start, start + 100)]
        store.add_comparisons([item.comparison for item in items])
        store.add_labels([label for item in items for label in item.labels])
        answered.update()
        seen.append(set(answered.held_out(40)))
    assert [len(some) for some in seen] == [40, 40, 40]
    places = sorted(holdout_place(item.comparison.id) for item in store.labelled())
    assert max(holdout_place(key) for key in seen[-1]) == places[39]
    # Of the first 40, those stay that are still among the first: about 40 x 1/2 and then 2/3 of them.
    assert len(seen[0] & seen[1]) > 10
    assert seen[0] & seen[2] <= seen[1], "one that has gone does not come back"


def test_what_another_run_asked_comes_before_the_first_round(store: PreferenceStore) -> None:
    ours, theirs = ([labelled(n, 1 + n % 3) for n in range(start, start + 30)] for start in (0, 30))
    items = [
        replace(item.comparison, id=f"{key}/r{item.comparison.round:04d}-{n:05d}", run=key)
        for key, part in (("first", theirs), ("second", ours))
        for n, item in enumerate(part)
    ]
    store.add_comparisons(items)
    store.add_labels([Label(item.id, "anna", Choice.A) for item in items[:30]])
    known = store.watermark()
    store.add_labels([Label(item.id, "anna", Choice.A) for item in items[30:]])
    answered = Answered(store, 0.0, "second")
    answered.update()
    old, fresh = answered.old_and_fresh(1, 1, known)
    assert [key for ids in old for key in ids] == sorted(item.id for item in items[:30]), "of all their rounds at once"
    assert fresh == sorted(item.id for item in items[30:] if item.round == 1)
    assert answered.labels(1) == 40
