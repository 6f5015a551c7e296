"""Whether a batch looks, to the reward model, as if it came from what people have labelled."""

from holdfast.guard.signal import Signal, level

SIGNAL = Signal(
    family="distance",
    meaning="unbiased squared maximum mean discrepancy between the batch and labelled answers, in the features that "
    "the first member's head reads; Gaussian kernel, median heuristic",
    unit="squared discrepancy",
    words=level("the answers' distance from labelled ones, as the reward model sees them, is"),
    read=lambda view, known: None if known.kernel is None else known.kernel.shift(view.features_BD),
    floor=0.005,
    needs="features of a reward model",
)
