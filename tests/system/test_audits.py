"""What a whole run asks people about, beside the comparisons it trains on."""

from __future__ import annotations

from pathlib import Path

from holdfast.preferences.store import PreferenceStore
from holdfast.reward.repeats import is_repeat, original_of
from small_run import events_of


def test_pointed_pairs_are_those_the_ensemble_is_surest_of(unbroken: Path) -> None:
    audits = events_of(unbroken, "audit")
    assert all(audit["pointed_pairs"] >= 6 for audit in audits)
    for audit in audits:
        as_they_come = audit["claimed_anchor"] or audit["claimed_reference"]
        assert audit["claimed_pointed"] > as_they_come


def test_every_round_asks_a_few_again_and_learns_from_none_of_them(unbroken: Path) -> None:
    with PreferenceStore.open(f"sqlite:///{unbroken / 'run.db'}") as store:
        ids = {item.comparison.id: item.comparison.round for item in store.labelled()}
    repeats = {key: number for key, number in ids.items() if is_repeat(key)}
    rounds = {event["round"] for event in events_of(unbroken, "labels_collected")}
    assert set(repeats.values()) == {0, *rounds}
    assert all(original_of(key) in ids for key in repeats)
    last = events_of(unbroken, "refresh")[-1]
    known = [key for key, number in ids.items() if number <= last["round"] and not is_repeat(key)]
    assert last["labels"] == len(known)
