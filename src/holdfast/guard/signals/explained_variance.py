"""The share of the rewards' ups and downs that the critic saw coming."""

from holdfast.guard.signal import Signal, level
from holdfast.guard.view import Known, StepView


def read(view: StepView, known: Known) -> float | None:
    return view.learned.get("val/explained_variance")


SIGNAL = Signal(
    name="explained_variance",
    family="update",
    meaning="1 - Var(return - value) / Var(return) over tokens, before the updates",
    unit="share",
    side="low",
    words=level("the critic explains a share of the returns of"),
    read=read,
    floor=0.05,
)
