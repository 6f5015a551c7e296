"""How much choice is left in an answer: a policy that has found one trick stops choosing, a broken one babbles."""

from holdfast.guard.signal import Signal, times

SIGNAL = Signal(
    family="certainty",
    meaning="-log pi of a sampled answer, mean over answers",
    unit="nats per answer",
    side="both",
    words=times("answers hold", "more choice", "less choice"),
    read=lambda view, known: float(view.surprisal_B.mean()) if len(view.surprisal_B) else None,
    floor=0.5,
    needs="the policy's log-probs",
)
