"""How far single answers lie outside the cloud of labelled ones, as the reward model sees them."""

from holdfast.guard.signal import Signal, times

SIGNAL = Signal(
    family="distance",
    meaning="Mahalanobis distance of an answer's features to those of labelled answers, over the square root of their "
    "number, shrunk covariance, mean over answers",
    unit="sd of labelled answers",
    words=times("to the reward model answers are", "further from labelled ones", "closer to labelled ones"),
    read=lambda view, known: None if known.ellipsoid is None else known.ellipsoid.distance(view.features_BD),
    scale="log",
    needs="features of a reward model",
)
