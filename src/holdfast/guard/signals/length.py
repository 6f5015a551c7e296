"""The most common hack: longer answers look more thorough. Short ones can pay too.

What a grammar made come is no choice of the policy's, and is not counted.
"""

from holdfast.guard.signal import Signal, times

SIGNAL = Signal(
    family="length",
    meaning="tokens in an answer (under a grammar those that were free), mean over answers",
    unit="tokens",
    side="both",
    words=times("answers are", "longer", "shorter"),
    read=lambda view, known: int(view.mask_BT.sum()) / len(view.responses) if view.responses else None,
    scale="log",
)
