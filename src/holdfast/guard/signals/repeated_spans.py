"""Whole sentences said again. Which token ends a sentence is not known here, so long runs of tokens stand for them."""

from holdfast.guard.grams import joined
from holdfast.guard.signal import Signal, share

SIGNAL = Signal(
    family="repetition",
    meaning="share of an answer's runs of 6 tokens that stood in it before, mean over answers",
    unit="share",
    words=share("of an answer's runs of 6 tokens repeat"),
    read=lambda view, known: joined(view.trigrams, view.trigrams).repeated(),
    floor=0.01,
)
