"""Members that agreed on the answers they were trained on part ways on answers that none has seen the like of."""

from holdfast.guard.signal import Signal, times
from holdfast.guard.view import Known, StepView
from holdfast.reward.aggregate import spread


def read(view: StepView, known: Known) -> float | None:
    members, answers = view.scores_KB.shape
    return float(spread(view.scores_KB).mean()) if members > 1 and answers else None


SIGNAL = Signal(
    family="disagreement",
    meaning="standard deviation over members of an answer's standardised score, mean over answers",
    unit="sd of reference scores",
    words=times("the ensemble's members disagree", "more", "less"),
    read=read,
    scale="log",
    needs="several members",
)
