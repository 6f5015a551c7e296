"""Distance to the reference over whole answers, the currency of the KL budget."""

from holdfast.guard.signal import Signal, level
from holdfast.guard.view import Known, StepView


def read(view: StepView, known: Known) -> float | None:
    # The reference is at distance 0 from itself, always: no baseline for a policy that is trained.
    return None if view.of_reference or len(view.kl_B) == 0 else float(view.kl_B.mean())


SIGNAL = Signal(
    name="kl_per_answer",
    family="distance",
    meaning="log pi - log ref of an answer, mean over answers",
    unit="nats per answer",
    side="high",
    words=level("KL to the reference is", "nats an answer"),
    read=read,
    scale="root",
    floor=0.05,
)
