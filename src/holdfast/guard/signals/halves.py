"""Reward models from two halves of the labels agree until the policy exploits what one half taught by chance."""

from holdfast.guard.signal import Signal, level
from holdfast.guard.view import Known, StepView


def read(view: StepView, known: Known) -> float | None:
    return None if view.probe_B is None else float((view.scores_KB.mean(0) - view.probe_B).mean())


SIGNAL = Signal(
    name="halves",
    family="disagreement",
    meaning="the members' mean score less that of a reward model from the other half of the labels, mean over answers",
    unit="sd of reference scores",
    side="high",
    words=level("the ensemble is above a reward model from the other half of the labels by", "sd"),
    read=read,
    floor=0.05,
)
