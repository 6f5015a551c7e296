"""Reading a batch with every signal at once, for the guard of a run and for who watches a stream of answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from holdfast.guard.signal import HALF, Signal
from holdfast.guard.view import Known, StepView

# The last readings of the signals that others are derived from, oldest first.
Recent = dict[str, list[float]]


def read_all(
    signals: Mapping[str, Signal], view: StepView, known: Known, recent: Mapping[str, Sequence[float]]
) -> tuple[dict[str, float], Recent]:
    """What every signal says of a batch, and what the next batch needs to know of it.

    What cannot be read, or is not a number, is left out.
    """
    found: dict[str, float] = {}
    for name, signal in signals.items():
        if signal.read is not None:
            _put(found, name, signal.read(view, known))
    for name, signal in signals.items():
        source = signal.derived_from
        if signal.derive is not None and source in found:
            _put(found, name, signal.derive([*recent.get(source, []), found[source]]))
    kept = {name: list(readings) for name, readings in recent.items()}
    for source in sorted({signal.derived_from for signal in signals.values()} & found.keys()):
        kept[source] = [*kept.get(source, []), found[source]][-2 * HALF :]
    return found, kept


def _put(found: dict[str, float], name: str, value: float | None) -> None:
    if value is not None and math.isfinite(value):
        found[name] = value
