"""Distance to the reference at each token, whatever the answers' length."""

from holdfast.guard.signal import Signal, level
from holdfast.guard.view import Known, StepView


def read(view: StepView, known: Known) -> float | None:
    tokens = int(view.mask_BT.sum())
    # The reference is at distance 0 from itself, always: no baseline for a policy that is trained.
    return None if view.of_reference or tokens == 0 else float(view.kl_B.sum()) / tokens


SIGNAL = Signal(
    family="distance",
    meaning="log pi - log ref of the sampled tokens, mean over tokens",
    unit="nats per token",
    words=level("KL to the reference is", "nats a token"),
    read=read,
    scale="root",
    floor=0.01,
)
