"""What a whole run asks people about, beside the comparisons it trains on."""

from __future__ import annotations

from pathlib import Path

from holdfast.preferences.store import PreferenceStore
from small_run import events_of


def test_pointed_pairs_are_those_the_ensemble_is_surest_of(unbroken: Path) -> None:
    audits = events_of(unbroken, "audit")
    assert all(audit["pointed_pairs"] >= 6 for audit in audits)
    for audit in audits:
        as_they_come = audit["claimed_anchor"] or audit["claimed_reference"]
        assert audit["claimed_pointed"] > as_they_come


def test_every_round_asks_a_few_again_and_learns_from_none_of_them(unbroken: Path) -> None:
    with PreferenceStore.open(f"sqlite:///{unbroken / 'run.db'}") as store:
        asked = [item.comparison for item in store.labelled()]
    repeats = [comparison for comparison in asked if comparison.purpose == "repeat"]
    rounds = {event["round"] for event in events_of(unbroken, "labels_collected")}
    assert {comparison.round for comparison in repeats} == {0, *rounds}
    assert {comparison.repeats for comparison in repeats} <= {comparison.id for comparison in asked}
    last = events_of(unbroken, "refresh")[-1]
    known = [c for c in asked if c.round <= last["round"] and c.purpose != "repeat"]
    assert last["labels"] == len(known)
