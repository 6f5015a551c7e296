"""Updates that carry the policy away from the answers they were computed on."""

from holdfast.guard.signal import Signal, level
from holdfast.guard.view import Known, StepView


def read(view: StepView, known: Known) -> float | None:
    return view.learned.get("val/ratio")


SIGNAL = Signal(
    name="ppo_ratio",
    family="update",
    meaning="pi_new / pi during the step's updates, mean over tokens",
    unit="ratio",
    side="both",
    words=level("the ratio of new to old policy is"),
    read=read,
    scale="log",
)
