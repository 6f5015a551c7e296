"""How much of the update runs into PPO's clipping."""

from holdfast.guard.signal import Signal, share

SIGNAL = Signal(
    family="update",
    meaning="share of tokens at which clipping lowered the objective",
    unit="share",
    words=share("of tokens are clipped in an update"),
    read=lambda view, known: view.learned.get("policy/clipfrac_avg"),
    floor=0.01,
)
