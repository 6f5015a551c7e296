"""Repetition of any shape, by how well a compressor does on an answer's tokens."""

import zlib
from array import array

from holdfast.guard.signal import Signal, times
from holdfast.guard.view import Known, StepView


def read(view: StepView, known: Known) -> float | None:
    answers = [array("i", response).tobytes() for response in view.responses if response]
    if not answers:
        return None
    return sum(map(len, answers)) / sum(len(zlib.compress(answer, 1)) for answer in answers)


SIGNAL = Signal(
    family="repetition",
    meaning="bytes of the answers' tokens over their bytes compressed, each answer by itself",
    unit="ratio",
    words=times("answers compress", "better", "worse"),
    read=read,
    scale="log",
)
