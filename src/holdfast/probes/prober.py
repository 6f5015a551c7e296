"""Probing as training goes on: when, with what, and where the rows go.

begin(policy)       the stage's own first answers, and the probe before its first update
probe(policy, n)    a row of probes.jsonl; in DPO also a warning when the squeezing effect is under way
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.models.policy import Policy
from holdfast.models.sharding import opened
from holdfast.probes.probe import read_probes
from holdfast.probes.probe_set import ProbeSet
from holdfast.probes.squeezing import Squeezing, find_squeezing
from holdfast.track.sinks import read_rows
from holdfast.track.tracker import Tracker

Answering = Callable[[Policy, list[list[int]]], list[list[int]]]


@dataclass
class Prober:
    """Measures one stage. Its memory is the file: after a resume, `recall` reads what was kept of it."""

    stage: str
    path: Path
    probes: ProbeSet
    every: int
    tracker: Tracker
    pad_id: int
    max_tokens: int
    rows: list[dict[str, Any]] = field(default_factory=list)

    def begin(self, policy: Policy, answer: Answering) -> None:
        """The model's own answers at the start of the stage join the set, and everything is measured once."""
        if self.stage not in self.probes.initial:
            self.probes = self.probes.with_initial(self.stage, answer(policy, self.probes.prompts))
            self.probes.save(self.path)
        self.probe(policy, 0, 0)

    def recall(self) -> None:
        """Take up the rows that the file has kept."""
        file = self.tracker.probes_path
        rows = [row for row in read_rows(file) if row.get("stage") == self.stage] if file.is_file() else []
        self.rows = list({row["step"]: row for row in rows}.values())

    def due(self, step: int) -> bool:
        return self.every > 0 and step % self.every == 0

    def probe(self, policy: Policy, step: int, round: int, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Measure, write and remember; returns the row."""
        with opened(policy):
            row = read_probes(policy, self.probes, self.stage, self.pad_id, self.max_tokens)
        first = self.rows[0] if self.rows else row
        gains = [
            (c - c0) - (r - r0)
            for c, c0, r, r0 in zip(
                row["each"]["chosen"], first["each"]["chosen"], row["each"]["rejected"], first["each"]["rejected"],
                strict=True,
            )
        ]  # fmt: skip
        row["margin"] = row["logprob"]["chosen"] - row["logprob"]["rejected"]
        row["margin_gain"] = sum(gains) / len(gains)
        row["accuracy"] = sum((g > 0) + 0.5 * (g == 0) for g in gains) / len(gains)
        row = {"stage": self.stage, "step": step, "round": round, **row, **(more or {})}
        self.tracker.probe(row)
        self.rows.append(row)
        return row

    def squeezing(self) -> Squeezing | None:
        """The squeezing effect, where the newest probe is the first to show it."""
        if any(find_squeezing(self.rows[:n]) for n in range(2, len(self.rows))):
            return None
        return find_squeezing(self.rows)
