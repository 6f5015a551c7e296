"""Answers to one prompt that all score alike teach nothing; a policy that has found one trick gets there."""

from holdfast.guard.signal import Signal, level
from holdfast.guard.view import Known, StepView


def read(view: StepView, known: Known) -> float | None:
    spreads = [float(rewards.std()) for rewards in view.rewards_by_group if len(rewards) > 1]
    return sum(spreads) / len(spreads) if spreads else None


SIGNAL = Signal(
    family="reward",
    meaning="standard deviation of the reward within the answers to one prompt, mean over prompts",
    unit="units of the reward",
    side="low",
    words=level("the spread of the reward within the answers to a prompt is"),
    read=read,
    floor=0.02,
    needs="a reward that is one number, and several answers to a prompt",
)
