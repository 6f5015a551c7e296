"""Updates that carry the policy away from the answers they were computed on."""

from holdfast.guard.signal import Signal, level

SIGNAL = Signal(
    family="update",
    meaning="pi_new / pi during the step's updates, mean over tokens",
    unit="ratio",
    side="both",
    words=level("the ratio of new to old policy is"),
    read=lambda view, known: view.learned.get("val/ratio"),
    scale="log",
)
