"""What a whole run asks people about, beside the comparisons it trains on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import small_run
from holdfast import auditing
from holdfast.auditing import pointed
from holdfast.preferences.store import PreferenceStore
from holdfast.reward.repeats import is_repeat, original_of
from small_run import events_of


def test_pointed_pairs_are_those_in_which_the_policy_has_moved_furthest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the likelihoods that the run itself computes, which of a policy's own answers are those of sampling."""
    seen: list[tuple[float, float]] = []

    def watched(pairs: Any, count: int, policy: Any, opponent: Any, voices: Any) -> Any:
        chosen = pointed(pairs, count, policy, opponent, voices)
        (ours, _), (theirs, _) = pairs.ours[0], pairs.theirs[0]
        places = [place for _, place in pairs.ours]
        sampled = (ours.logprobs_BT * ours.mask_BT).sum(1)[places]
        torch.testing.assert_close(voices.likelihood(policy, ours, places), sampled, atol=1e-4, rtol=1e-4)
        far = sampled - voices.likelihood(opponent, ours, places)
        theirs_places = [place for _, place in pairs.theirs]
        far -= voices.likelihood(policy, theirs, theirs_places) - voices.likelihood(opponent, theirs, theirs_places)
        assert len(chosen.rows) == count == len(pairs.rows) // 3
        seen.append((float(far.topk(count).values.mean()), float(far.mean())))
        kept = [places.index(place) for _, place in chosen.ours]
        assert sorted(kept) == sorted(far.topk(count).indices.tolist())
        return chosen

    monkeypatch.setattr(auditing, "pointed", watched)
    audits = events_of(small_run.run(tmp_path, run__rounds="2"), "audit")
    assert all(audit["pointed_pairs"] >= 6 for audit in audits)
    assert len(seen) >= len(audits)
    assert all(furthest > usual for furthest, usual in seen)


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
