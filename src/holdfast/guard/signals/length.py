"""The most common hack: longer answers look more thorough. Short ones can pay too."""

from holdfast.guard.signal import Signal, times
from holdfast.guard.view import Known, StepView


def read(view: StepView, known: Known) -> float | None:
    return len(view.tokens_N) / len(view.responses) if view.responses else None


SIGNAL = Signal(
    name="length",
    family="length",
    meaning="tokens in an answer, mean over answers",
    unit="tokens",
    side="both",
    words=times("answers are", "longer", "shorter"),
    read=read,
    scale="log",
)
