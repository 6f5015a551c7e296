"""The KL that a run may never pass, whatever its controller aims at."""

from __future__ import annotations

import math
from dataclasses import dataclass

from holdfast.errors import HoldfastError


@dataclass(frozen=True)
class KLLimit:
    """A hard limit on the KL to the reference, in nats per response; None for no limit."""

    hard: float | None

    def __post_init__(self) -> None:
        if self.hard is not None and not self.hard > 0:
            raise HoldfastError(f"The hard KL limit is {self.hard}; set it above 0, or leave it out for none.")

    def exceeded(self, kl: float) -> bool:
        """Whether the KL is above the limit; NaN is neither above nor below and raises ValueError."""
        if math.isnan(kl):
            raise ValueError("A KL that is not a number cannot be held against the limit; drop the step instead.")
        return self.hard is not None and kl > self.hard
