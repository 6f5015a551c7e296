"""How far one update moved the policy."""

from holdfast.guard.signal import Signal, level
from holdfast.guard.view import Known, StepView


def read(view: StepView, known: Known) -> float | None:
    return view.learned.get("objective/kl_step")


SIGNAL = Signal(
    name="kl_step",
    family="update",
    meaning="KL from the policy before a step's update to the one after it",
    unit="nats per answer",
    side="high",
    words=level("an update moves the policy by", "nats an answer"),
    read=read,
    scale="root",
    floor=0.01,
)
