"""When to save between two rounds: as soon as that costs little beside the work that it would save.

A save is due when it takes less than a tenth of the time since the last one. A model whose steps take minutes is saved
after every step, and a small one every few. When it was saved never changes what is computed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

# The share of its time that a run may spend on saving within rounds.
SHARE = 0.1


@dataclass
class SavePace:
    """How long the last save took, and when it ended."""

    clock: Callable[[], float] = time.monotonic
    seconds: float = 0.0
    since: float = field(init=False)

    def __post_init__(self) -> None:
        self.since = self.clock()

    @property
    def due(self) -> bool:
        """Whether a save like the last one would be cheap; the first is made to see what one takes."""
        return self.seconds <= SHARE * (self.clock() - self.since)

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Around a save, which is timed."""
        begun = self.clock()
        yield
        self.since = self.clock()
        self.seconds = self.since - begun
