"""Answers that go on until they are cut off."""

from holdfast.guard.signal import Signal, share

SIGNAL = Signal(
    family="length",
    meaning="share of answers without an end token",
    unit="share",
    words=share("of answers do not end"),
    read=lambda view, known: 1.0 - sum(view.finished) / len(view.finished) if view.finished else None,
    floor=0.01,
)
