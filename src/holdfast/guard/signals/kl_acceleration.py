"""Updates that grow from step to step: the policy has found something that pays and runs after it."""

from collections.abc import Sequence

from holdfast.guard.signal import Signal, halves_of, level


def derive(history: Sequence[float]) -> float | None:
    halves = halves_of(history)
    return None if halves is None else halves[1] - halves[0]


SIGNAL = Signal(
    family="update",
    meaning="KL per step over the newest three steps less that over the three before",
    unit="nats per answer",
    words=level("the KL of an update grows within six steps by", "nats an answer"),
    derived_from="kl_step",
    derive=derive,
    floor=0.01,
)
