"""When a run's gold began to fall, and whether the run kept its peak."""

from __future__ import annotations

from collections.abc import Sequence

# The share of the rise below its peak at which gold counts as fallen, and the least rise that this is taken of: a run
# that never rose has no rise to lose, and a tenth of nothing would be noise.
FALL = 0.1
LEAST_RISE = 0.1
# Rounds from the beginning of a fall to the verdict that are soon enough. A fall that is over by then is a dip.
SOON = 2


def onset(heldout: Sequence[float]) -> int | None:
    """The round in which gold begins the first fall that lasts: fallen in `SOON` further rounds, or until the end.

    A shorter one is a dip. Nobody was late to call it, since it mended itself before the time for that was up; and who
    did call it was right about the policy of that round.
    """
    begin = None
    for round, is_down in enumerate(down := fallen(heldout)):
        if not is_down:
            begin = None
        elif begin is None:
            begin = round
        if begin is not None and (round - begin == SOON or round == len(down) - 1):
            return begin
    return None


def fallen(heldout: Sequence[float]) -> list[bool]:
    """For every round, whether gold stands fallen below its peak so far."""
    down, peak = [], heldout[0]
    for value in heldout:
        peak = max(peak, value)
        down.append(value < peak - FALL * max(peak - heldout[0], LEAST_RISE))
    return down


def kept_its_peak(start: float, peak: float, end: float) -> bool:
    """Whether a run ends no more than `FALL` of the rise below the best it had."""
    return end >= peak - FALL * max(peak - start, LEAST_RISE)
