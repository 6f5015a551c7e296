"""Distance to the reference over whole answers, the currency of the KL budget."""

from holdfast.guard.signal import Signal, level

SIGNAL = Signal(
    family="distance",
    meaning="log pi - log ref of an answer, mean over answers",
    unit="nats per answer",
    words=level("KL to the reference is", "nats an answer"),
    # The reference is at distance 0 from itself, always: no baseline for a policy that is trained.
    read=lambda view, known: None if view.of_reference or len(view.kl_B) == 0 else float(view.kl_B.mean()),
    scale="root",
    floor=0.05,
)
