"""A reward of several components that rises by one of them alone is being paid for one thing."""

from holdfast.guard.signal import Signal, share
from holdfast.guard.view import Known, StepView


def read(view: StepView, known: Known) -> float | None:
    means = [
        float(values_B[~values_B.isnan()].abs().mean())
        for values_B in view.components.values()
        if bool((~values_B.isnan()).any())
    ]
    total = sum(means)
    return max(means) / total if len(means) > 1 and total > 0 else None


SIGNAL = Signal(
    family="reward",
    meaning="the largest component's share of the sum of all components' mean sizes",
    unit="share",
    words=share("of the reward is one component's"),
    read=read,
    floor=0.05,
    needs="a reward with several components",
)
