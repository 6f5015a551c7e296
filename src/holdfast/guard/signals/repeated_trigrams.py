"""Phrases said again and again within an answer."""

from holdfast.guard.signal import Signal, share

SIGNAL = Signal(
    family="repetition",
    meaning="share of an answer's runs of 3 tokens that stood in it before, mean over answers",
    unit="share",
    words=share("of an answer's runs of 3 tokens repeat"),
    read=lambda view, known: view.trigrams.repeated(),
    floor=0.01,
)
