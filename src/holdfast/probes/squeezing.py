"""Is the squeezing effect under way? The argmax rises while the chosen answers themselves have begun to fall.

Means over the same prompts are compared with a paired standard error, so that noise is no finding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

# Standard errors that a difference has to be away from 0.
SURE = 2.0


@dataclass(frozen=True)
class Squeezing:
    """How far chosen and rejected answers fell, and the argmax rose, since the chosen ones were likeliest; in nats."""

    peak_step: int
    step: int
    chosen_fall: float
    rejected_fall: float
    argmax_rise: float

    @property
    def sentence(self) -> str:
        return (
            f"The chosen answers have lost {self.chosen_fall:.1f} nats since step {self.peak_step} and the rejected "
            f"ones {self.rejected_fall:.1f}, while the argmax has gained {self.argmax_rise:.1f}: probability is "
            "squeezed into what the model says anyway. Stop earlier, lower dpo.lr, raise dpo.beta, set "
            "dpo.nll_weight, or fine-tune on both answers first (dpo.sft_both)."
        )


def find_squeezing(rows: Sequence[Mapping[str, Any]]) -> Squeezing | None:
    """What the newest probe of a stage shows against the one at which chosen answers were likeliest."""
    if len(rows) < 2:
        return None
    peak, now = max(rows, key=lambda row: float(row["logprob"]["chosen"])), rows[-1]
    if peak is now:
        return None
    chosen, rejected, argmax = (_change(peak, now, kind) for kind in ("chosen", "rejected", "argmax"))
    if not (_surely(chosen, -1) and _surely(rejected, -1) and _surely(argmax, 1)):
        return None
    return Squeezing(int(peak["step"]), int(now["step"]), -fmean(chosen), -fmean(rejected), fmean(argmax))


def _change(before: Mapping[str, Any], after: Mapping[str, Any], kind: str) -> list[float]:
    return [b - a for a, b in zip(before["each"][kind], after["each"][kind], strict=True)]


def _surely(differences: Sequence[float], sign: int) -> bool:
    error = float(stdev(differences)) / len(differences) ** 0.5
    return bool(sign * fmean(differences) > SURE * error)
