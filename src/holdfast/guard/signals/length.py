"""The most common hack: longer answers look more thorough. Short ones can pay too."""

from holdfast.guard.signal import Signal, times

SIGNAL = Signal(
    family="length",
    meaning="tokens in an answer, mean over answers",
    unit="tokens",
    side="both",
    words=times("answers are", "longer", "shorter"),
    read=lambda view, known: len(view.tokens_N) / len(view.responses) if view.responses else None,
    scale="log",
)
