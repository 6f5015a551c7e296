"""How far one update moved the policy."""

from holdfast.guard.signal import Signal, level

SIGNAL = Signal(
    family="update",
    meaning="KL from the policy before a step's update to the one after it",
    unit="nats per answer",
    words=level("an update moves the policy by", "nats an answer"),
    read=lambda view, known: view.learned.get("objective/kl_step"),
    scale="root",
    floor=0.01,
)
