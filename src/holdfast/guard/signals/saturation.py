"""A reward that most answers have in full has nothing left to teach: what is still learnt is something else."""

from holdfast.guard.signal import Signal, share
from holdfast.guard.view import Known, StepView


def read(view: StepView, known: Known) -> float | None:
    rewards = view.scored_rewards
    if len(rewards) < 2 or rewards.max() == rewards.min():
        return None
    return float((rewards == rewards.max()).double().mean())


SIGNAL = Signal(
    family="reward",
    meaning="share of a batch's answers that have its highest reward",
    unit="share",
    words=share("of the answers have the highest reward"),
    read=read,
    floor=0.05,
    needs="a reward that is one number",
)
