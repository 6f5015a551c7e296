"""What a whole run asks people about, beside the comparisons it trains on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import small_run
from holdfast.guard import auditor
from holdfast.guard.auditor import furthest
from holdfast.preferences.store import PreferenceStore
from small_run import events_of


def test_pointed_pairs_are_those_the_ensemble_is_surest_of(unbroken: Path) -> None:
    audits = events_of(unbroken, "audit")
    assert all(audit["pointed_pairs"] >= 6 for audit in audits)
    for audit in audits:
        as_they_come = audit["claimed_anchor"] or audit["claimed_reference"]
        assert audit["claimed_pointed"] > as_they_come


def test_or_those_in_which_the_policy_has_moved_furthest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the likelihoods that the run itself computes, which of a policy's own answers are those of sampling."""
    opponents = []

    def watched(pairs: Any, count: int, policy: Any, opponent: Any, voices: Any) -> Any:
        chosen = furthest(pairs, count, policy, opponent, voices)
        far = torch.zeros(len(pairs.rows))
        for side, own, other in ((pairs.ours, policy, opponent), (pairs.theirs, opponent, policy)):
            rollout, places = side[0][0], [place for _, place in side]
            sampled = voices.own(own, rollout, places)
            torch.testing.assert_close(voices.likelihood(own, rollout, places), sampled, atol=1e-4, rtol=1e-4)
            far += sampled - voices.likelihood(other, rollout, places)
        assert len(chosen.rows) == count == len(pairs.rows) // 3
        asked = [pairs.ours.index(answer) for answer in chosen.ours]
        assert asked == sorted(far.topk(count).indices.tolist())
        opponents.append(opponent)
        return chosen

    monkeypatch.setattr(auditor, "furthest", watched)
    audits = events_of(small_run.run(tmp_path, run__rounds="3", audit__pointed="moved"), "audit")
    assert all(audit["pointed_pairs"] >= 6 for audit in audits)
    assert len({id(opponent) for opponent in opponents}) == 2, "the reference at first, then the last good policy"


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
