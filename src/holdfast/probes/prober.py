"""Probing as training goes on: when, with what, and where the rows go.

begin(policy)       the stage's own first answers, and the probe before its first update
probe(policy, n)    a row of probes.jsonl; in DPO also a warning when the squeezing effect is under way
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from holdfast.models.policy import Policy
from holdfast.models.sharding import opened
from holdfast.probes.probe import read_probes
from holdfast.probes.probe_set import ProbeSet
from holdfast.track.sinks import read_rows
from holdfast.track.tracker import Tracker

Answering = Callable[[Policy, list[list[int]]], list[list[int]]]


# Standard errors that a difference has to be away from 0.
SURE = 2.0


@dataclass(frozen=True)
class Squeezing:
    """How far chosen and rejected answers fell, and the argmax rose, since the chosen ones were likeliest; in nats."""

    peak_step: int
    step: int
    chosen_fall: float
    rejected_fall: float
    argmax_rise: float

    @property
    def sentence(self) -> str:
        return (
            f"The chosen answers have lost {self.chosen_fall:.1f} nats since step {self.peak_step} and the rejected "
            f"ones {self.rejected_fall:.1f}, while the argmax has gained {self.argmax_rise:.1f}: probability is "
            "squeezed into what the model says anyway. Stop earlier, lower dpo.lr, raise dpo.beta, set "
            "dpo.nll_weight, or fine-tune on both answers first (dpo.sft_both)."
        )


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


def find_squeezing(rows: Sequence[Mapping[str, Any]]) -> Squeezing | None:
    """The argmax rises while the chosen answers themselves have begun to fall, since they were likeliest.

    Means over the same prompts are compared with a paired standard error, so that noise is no finding.
    """
    if len(rows) < 2:
        return None
    peak, now = max(rows, key=lambda row: float(row["logprob"]["chosen"])), rows[-1]
    if peak is now:
        return None
    chosen, rejected, argmax = (_change(peak, now, kind) for kind in ("chosen", "rejected", "argmax"))
    if not (_surely(chosen, -1) and _surely(rejected, -1) and _surely(argmax, 1)):
        return None
    return Squeezing(int(peak["step"]), int(now["step"]), -fmean(chosen), -fmean(rejected), fmean(argmax))


def _change(before: Mapping[str, Any], after: Mapping[str, Any], kind: str) -> list[float]:
    return [b - a for a, b in zip(before["each"][kind], after["each"][kind], strict=True)]


def _surely(differences: Sequence[float], sign: int) -> bool:
    error = float(stdev(differences)) / len(differences) ** 0.5
    return bool(sign * fmean(differences) > SURE * error)
