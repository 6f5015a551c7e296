"""Trials made by hand, for what is made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.lab.experiment import ResultCell, Results
from holdfast.lab.trial import Labels, Trial

STEPS = 2


def trial(heldout: Sequence[float], seed: int = 0, delivered: float | None = None, **more: Any) -> Trial:
    """A trial with this held-out gold by round, two steps a round, and a proxy that rises."""
    rounds = max(0, len(heldout) - 1)
    steps = list(range(1, STEPS * rounds + 1))
    made: dict[str, Any] = {
        "seed": seed,
        "steps": steps,
        "rounds": [1 + i // STEPS for i in range(len(steps))],
        "proxy": [0.1 * s for s in steps],
        "gold": [heldout[1 + i // STEPS] for i in range(len(steps))],
        "kl": [0.5 * s for s in steps],
        "heldout": list(heldout),
        "heldout_steps": [STEPS * r for r in range(len(heldout))],
        "delivered": delivered if delivered is not None else heldout[-1] if heldout else float("nan"),
        "labels": Labels(100, 20),
        "tokens": 1000,
        "seconds": 10.0,
        "cpu_seconds": 9.0,
    }
    return Trial(**{**made, **more})


def results(trials: Mapping[tuple[str, str, int], Trial]) -> Results:
    """Results with these trials, by scenario, arm and seed, in the order given."""
    return Results(
        scenarios=list(dict.fromkeys(key[0] for key in trials)),
        arms=list(dict.fromkeys(key[1] for key in trials)),
        seeds=sorted({key[2] for key in trials}),
        trials={ResultCell(*key): value for key, value in trials.items()},
    )
