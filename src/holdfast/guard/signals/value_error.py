"""A critic that no longer knows what to expect: the rewards have changed their nature."""

from holdfast.guard.signal import Signal, times
from holdfast.guard.view import Known, StepView


def read(view: StepView, known: Known) -> float | None:
    return view.learned.get("loss/value_avg")


SIGNAL = Signal(
    name="value_error",
    family="update",
    meaning="the critic's clipped squared error, times value_coef / 2, mean over tokens and updates",
    unit="squared reward",
    side="high",
    words=times("the critic's error is", "larger", "smaller"),
    read=read,
    scale="log",
)
