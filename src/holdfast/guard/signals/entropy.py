"""How much choice is left in an answer: a policy that has found one trick stops choosing, a broken one babbles."""

from holdfast.guard.signal import Signal, times
from holdfast.guard.view import Known, StepView


def read(view: StepView, known: Known) -> float | None:
    return float(view.surprisal_B.mean()) if len(view.surprisal_B) else None


SIGNAL = Signal(
    name="entropy",
    family="certainty",
    meaning="-log pi of a sampled answer, mean over answers",
    unit="nats per answer",
    side="both",
    words=times("answers hold", "more choice", "less choice"),
    read=read,
    floor=0.5,
)
