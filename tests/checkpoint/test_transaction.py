"""Named parts as one snapshot: captured, restored, compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from holdfast.checkpoint.store import CheckpointStore
from holdfast.checkpoint.transaction import capture, differences, restore, state_of
from holdfast.errors import HoldfastError


class Counter:
    def __init__(self, count: int, weights: Tensor | None = None) -> None:
        self.count, self.weights = count, weights

    def state(self) -> dict[str, Any]:
        return {"count": self.count, **({} if self.weights is None else {"weights": self.weights.clone()})}

    def restore(self, state: dict[str, Any]) -> None:
        self.count, self.weights = state["count"], state.get("weights")


def parts() -> dict[str, Counter]:
    return {"a": Counter(1, torch.tensor([0.1, -0.0])), "b": Counter(2)}


def test_parts_come_back_bit_for_bit_from_disk(tmp_path: Path) -> None:
    live = parts()
    store = CheckpointStore(tmp_path)
    store.save("one", before := capture(live))
    live["a"].weights, live["b"].count = torch.zeros(2), 7
    assert differences(before, capture(live), live) == ["a/weights", "b/count"]
    restore(live, store.load("one"))
    assert differences(before, capture(live), live) == []
    assert live["a"].weights is not None
    assert bool(live["a"].weights[1].signbit())
    assert sorted(p.name for p in (tmp_path / "one").iterdir()) == ["a.safetensors", "manifest.json", "parts.json"]


def test_what_is_not_named_goes_on() -> None:
    live = parts()
    before = capture(live)
    live["a"].count = live["b"].count = 9
    restore({"a": live["a"]}, before)
    assert (live["a"].count, live["b"].count) == (1, 9)
    assert differences(before, capture(live), ["a"]) == []


def test_a_value_that_came_or_went_is_a_difference() -> None:
    live = parts()
    before = capture(live)
    live["b"].weights, live["a"].weights = torch.ones(1), None
    assert differences(before, capture(live), live) == ["a/weights", "b/weights"]


def test_a_part_that_the_snapshot_lacks_is_named_before_anything_moves() -> None:
    live = parts()
    without = capture({"a": live["a"]})
    live["a"].count = 5
    with pytest.raises(HoldfastError, match="made without the part 'b'; resume with the settings"):
        restore(live, without)
    assert live["a"].count == 5
    assert state_of(without, "a")["count"] == 1
