"""The share of the rewards' ups and downs that the critic saw coming."""

from holdfast.guard.signal import Signal, level

SIGNAL = Signal(
    family="update",
    meaning="1 - Var(return - value) / Var(return) over tokens, before the updates",
    unit="share",
    side="low",
    words=level("the critic explains a share of the returns of"),
    read=lambda view, known: view.learned.get("val/explained_variance"),
    floor=0.05,
)
