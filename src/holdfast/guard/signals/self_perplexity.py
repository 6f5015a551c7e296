"""A policy ever surer of every next word, while its reward rises, is reciting."""

import math

from holdfast.guard.signal import Signal, level
from holdfast.guard.view import Known, StepView


def read(view: StepView, known: Known) -> float | None:
    tokens = int(view.mask_BT.sum())
    return math.exp(min(float(view.surprisal_B.sum()) / tokens, 50.0)) if tokens else None


SIGNAL = Signal(
    family="certainty",
    meaning="exp of -log pi of the sampled tokens, mean over tokens",
    unit="perplexity",
    side="low",
    words=level("the policy's perplexity on its own answers is"),
    read=read,
    scale="log",
    needs="the policy's log-probs",
)
