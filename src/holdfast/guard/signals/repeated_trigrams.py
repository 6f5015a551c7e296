"""Phrases said again and again within an answer."""

from holdfast.guard.signal import Signal, share
from holdfast.guard.view import Known, StepView


def read(view: StepView, known: Known) -> float | None:
    return view.trigrams.repeated()


SIGNAL = Signal(
    name="repeated_trigrams",
    family="repetition",
    meaning="share of an answer's runs of 3 tokens that stood in it before, mean over answers",
    unit="share",
    side="high",
    words=share("of an answer's runs of 3 tokens repeat"),
    read=read,
    floor=0.01,
)
