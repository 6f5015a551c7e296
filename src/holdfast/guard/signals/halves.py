"""Reward models from two halves of the labels agree until the policy exploits what one half taught by chance."""

from holdfast.guard.signal import Signal, level

SIGNAL = Signal(
    family="disagreement",
    meaning="the members' mean score less that of a reward model from the other half of the labels, mean over answers",
    unit="sd of reference scores",
    words=level("the ensemble is above a reward model from the other half of the labels by", "sd"),
    read=lambda view, known: None if view.probe_B is None else float((view.scores_KB.mean(0) - view.probe_B).mean()),
    floor=0.05,
)
