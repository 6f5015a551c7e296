"""Answers that go on until they are cut off."""

from holdfast.guard.signal import Signal, share
from holdfast.guard.view import Known, StepView


def read(view: StepView, known: Known) -> float | None:
    return 1.0 - sum(view.finished) / len(view.finished) if view.finished else None


SIGNAL = Signal(
    name="unfinished",
    family="length",
    meaning="share of answers without an end token",
    unit="share",
    side="high",
    words=share("of answers do not end"),
    read=read,
    floor=0.01,
)
