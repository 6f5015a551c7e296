"""How many threads suit somebody else's code best: it is given whichever number is faster."""

from __future__ import annotations

from collections.abc import Callable


def best_threads(cores: int, use: Callable[[int], object], seconds: Callable[[], float]) -> int:
    """One thread or one per core, after a warm-up, and set when this returns: small models may be faster on one."""
    if cores == 1:
        return 1
    seconds()
    times = {}
    for threads in (1, cores):
        use(threads)
        times[threads] = seconds()
    best = min(times, key=lambda threads: times[threads])
    use(best)
    return best
