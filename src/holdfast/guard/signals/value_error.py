"""A critic that no longer knows what to expect: the rewards have changed their nature."""

from holdfast.guard.signal import Signal, times

SIGNAL = Signal(
    family="update",
    meaning="the critic's clipped squared error, times value_coef / 2, mean over tokens and updates",
    unit="squared reward",
    words=times("the critic's error is", "larger", "smaller"),
    read=lambda view, known: view.learned.get("loss/value_avg"),
    scale="log",
)
