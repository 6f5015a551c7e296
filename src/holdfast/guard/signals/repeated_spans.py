"""Whole sentences said again. Which token ends a sentence is not known here, so long runs of tokens stand for them."""

from holdfast.guard.grams import joined
from holdfast.guard.signal import Signal, share
from holdfast.guard.view import Known, StepView


def read(view: StepView, known: Known) -> float | None:
    return joined(view.trigrams, view.trigrams).repeated()


SIGNAL = Signal(
    name="repeated_spans",
    family="repetition",
    meaning="share of an answer's runs of 6 tokens that stood in it before, mean over answers",
    unit="share",
    side="high",
    words=share("of an answer's runs of 6 tokens repeat"),
    read=read,
    floor=0.01,
)
