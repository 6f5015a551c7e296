"""Answers that cannot be scored are left out of what is learnt; a policy may learn to give more of them."""

from holdfast.guard.signal import Signal, share
from holdfast.guard.view import Known, StepView


def read(view: StepView, known: Known) -> float | None:
    given_B = view.given_B
    return None if given_B is None or not len(given_B) else float(given_B.isnan().double().mean())


SIGNAL = Signal(
    family="reward",
    meaning="share of answers that the reward could not score",
    unit="share",
    words=share("of the answers could not be scored"),
    read=read,
    floor=0.02,
    needs="a reward that is one number",
)
