"""Words that people hardly saw when they labelled: what the reward says of them is a guess."""

from holdfast.guard.signal import Signal, level
from holdfast.guard.view import Known, StepView


def read(view: StepView, known: Known) -> float | None:
    if not known.labelled_tokens or len(view.tokens_N) == 0:
        return None
    return float(known.surprisal_V[view.tokens_N].mean())


SIGNAL = Signal(
    family="vocabulary",
    meaning="-log of a token's share among labelled answers, add-one smoothed, mean over tokens",
    unit="nats per token",
    words=level("the answers' tokens are rare among labelled ones:", "nats a token"),
    read=read,
    floor=0.05,
    needs="labels that the reward learnt from",
)
