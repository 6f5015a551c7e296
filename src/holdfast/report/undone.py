"""Steps that a rollback took back. They count on, so they stay in every chart, hatched; words leave them out."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.report.data import RunData

Curve = list[tuple[int, float]]


@dataclass(frozen=True)
class Undone:
    """Stretches (start, stop] of steps in order, none touching another."""

    spans: tuple[tuple[int, int], ...] = ()

    def covers(self, step: int) -> bool:
        """Whether a step was taken back."""
        place = bisect_left(self.spans, step, key=lambda span: span[1])
        return place < len(self.spans) and self.spans[place][0] < step

    def kept(self, curve: Curve) -> Curve:
        """A curve without the steps that were taken back."""
        return [(step, value) for step, value in curve if not self.covers(step)] if self.spans else curve


def undone(run: RunData) -> Undone:
    """What all rollbacks of a run took back; the last one that tells of all of them has the last word."""
    known: list[tuple[int, int]] = []  # by the run's ledger, which has no entry for a step that was dropped
    between: list[tuple[int, int]] = []  # from where each rollback went to where it came from
    for event in run.happened("rollback"):
        start, stop = event.fields["step_to"], event.fields["step_from"]
        if "undone" in event.fields:
            known = [(first, last) for first, last in event.fields["undone"]]
            # One that goes back into such a stretch may stand on its steps again: there the ledger decides.
            between = [(a, b) for a, b in between if not a < start <= b]
        between.append((start, stop))
    return Undone(_merged([(a, b) for a, b in (*known, *between) if a < b]))


def _merged(spans: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(stop, merged[-1][1])
        else:
            merged.append((start, stop))
    return tuple(merged)


# What the event of a mean of policies calls the metrics that it was measured by.
OF_THE_MEAN = {"objective/scores": "score", "objective/kl": "kl", "response/length_mean": "length"}


def kept_curve(run: RunData, metric: str) -> Curve:
    """A metric on the line that was kept; at its end that of the mean of the last policies, if the run ended so."""
    curve = undone(run).kept(run.known(metric))
    mean = next((event for event in reversed(run.events) if event.kind == "averaged"), None)
    if mean is None or not curve or curve[-1][0] != mean.step:
        return curve
    value = mean.fields.get(OF_THE_MEAN.get(metric, ""))
    return curve if value is None else [*curve[:-1], (curve[-1][0], value)]


def kept_gold(run: RunData, split: str) -> Curve:
    """Gold of a split on the line that was kept. Right after a rollback held-out gold is the older policy's."""
    gone = undone(run)
    again = {row.step for row in run.gold_undone} if split == "heldout" else set()
    return [(step, value) for step, value in run.gold_of(split) if step in again or not gone.covers(step)]
