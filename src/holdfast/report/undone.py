"""Steps that a rollback took back. They count on, so they stay in every chart, hatched; words leave them out."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.report.data import EventRow, RunData

Curve = list[tuple[int, float]]


@dataclass(frozen=True)
class Undone:
    """Stretches (start, stop] of steps in order, none touching another."""

    spans: tuple[tuple[int, int], ...] = ()

    def covers(self, step: int) -> bool:
        """Whether a step was taken back."""
        place = bisect_left(self.spans, step, key=lambda span: span[1])
        return place < len(self.spans) and self.spans[place][0] < step

    def newest_kept(self, steps: Sequence[int], at: int) -> int:
        """The newest of some steps in order, up to one, that was not taken back; 0 where there is none."""
        place = bisect_right(steps, at)
        while place and self.covers(steps[place - 1]):
            start = next(start for start, stop in self.spans if start < steps[place - 1] <= stop)
            place = bisect_right(steps, start)
        return steps[place - 1] if place else 0

    def kept(self, curve: Curve) -> Curve:
        """A curve without the steps that were taken back."""
        return [(step, value) for step, value in curve if not self.covers(step)] if self.spans else curve


def undone(run: RunData) -> Undone:
    """What all rollbacks of a run took back."""
    return undone_by(run.happened("rollback"))


def undone_by(rollbacks: Sequence[EventRow]) -> Undone:
    """What some rollbacks took back, one after another; the last that tells of all of them has the last word."""
    known: list[tuple[int, int]] = []  # by the run's ledger, which has no entry for a step that was dropped
    between: list[tuple[int, int]] = []  # from where each rollback went to where it came from
    for event in rollbacks:
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
