"""How much of the update runs into PPO's clipping."""

from holdfast.guard.signal import Signal, share
from holdfast.guard.view import Known, StepView


def read(view: StepView, known: Known) -> float | None:
    return view.learned.get("policy/clipfrac_avg")


SIGNAL = Signal(
    name="clip_fraction",
    family="update",
    meaning="share of tokens at which clipping lowered the objective",
    unit="share",
    side="high",
    words=share("of tokens are clipped in an update"),
    read=read,
    floor=0.01,
)
