"""Words that nobody has ever labelled."""

from holdfast.guard.signal import Signal, share
from holdfast.guard.view import Known, StepView


def read(view: StepView, known: Known) -> float | None:
    if not known.labelled_tokens or len(view.tokens_N) == 0:
        return None
    return float((known.counts_V[view.tokens_N] == 0).double().mean())


SIGNAL = Signal(
    family="vocabulary",
    meaning="share of tokens that stand in no labelled answer",
    unit="share",
    words=share("of the answers' tokens were never labelled"),
    read=read,
    floor=0.005,
    needs="labels that the reward learnt from",
)
