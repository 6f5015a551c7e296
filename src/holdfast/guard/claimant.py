"""Who claims which of two answers people prefer, where the reward is one number: the scale that audits have taught it.

Shapes: P pair.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from holdfast.guard.claims import UNCLAIMED
from holdfast.guard.scale import Scale
from holdfast.preferences.pair import Pair


@dataclass(frozen=True)
class Told:
    """What a reward says of a pair: how likely people are to prefer the first side, and of a reward that is one number
    how much more the first side got, in all and for each component; `whole` is that of the reward before any component
    of it was counted for less."""

    claim: float
    margin: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    whole: float | None = None

    @property
    def sureness(self) -> float:
        """By what pairs are ordered: a reward may not know yet what its numbers are worth.

        A component that counts for less still stands in the answers of the policy that has learnt it: to count it in
        full points at what it has done.
        """
        known = [value for value in (self.whole, self.margin) if value is not None]
        return known[0] if known else self.claim


@dataclass(frozen=True)
class PairScores:
    """How much more the first sides got, in all and by component; NaN where a side could not be scored."""

    margin_P: Tensor
    parts: Mapping[str, Tensor] = field(default_factory=dict)
    whole_P: Tensor | None = None  # before any component was counted for less, where one is


@dataclass
class ScalarClaimant:
    """Claims by differences in reward; satisfies `Claimant`. `score` gives them for pairs.

    `name` and `part` are what sentences call the reward and one of its components, `made` the version of the reward.
    """

    score: Callable[[Sequence[Pair]], PairScores]
    name: str = "the reward"
    part: str = "component"
    made: int = 1
    scale: Scale = field(default_factory=Scale)

    @property
    def version(self) -> int:
        """0 while the audits do not say what the reward is worth to people: then nothing is claimed."""
        return self.made if self.scale.ready else UNCLAIMED

    @property
    def members(self) -> Sequence[object]:
        """One opinion, which cannot disagree with itself."""
        return (self,)

    def margins(self, pairs: Sequence[Pair]) -> Tensor:
        """margins_KP, of the one opinion; 0 where a side could not be scored."""
        if not pairs:
            return torch.zeros(1, 0)
        return self.score(pairs).margin_P.nan_to_num(0.0)[None]

    def claims(self, pairs: Sequence[Pair]) -> Tensor:
        """claim_P: the probability that people prefer the first side, 1/2 where a side could not be scored."""
        return torch.tensor([told.claim for told in self.told(pairs)])

    def told(self, pairs: Sequence[Pair]) -> list[Told]:
        """Everything that the reward says of these pairs."""
        if not pairs:
            return []
        scores = self.score(pairs)
        margins = scores.margin_P.tolist()
        claims = self.scale.claims([m if math.isfinite(m) else 0.0 for m in margins])
        parts = {name: values_P.tolist() for name, values_P in scores.parts.items()}
        whole = margins if scores.whole_P is None else scores.whole_P.tolist()
        return [
            Told(
                claims[n] if math.isfinite(margin) else 0.5,
                margin if math.isfinite(margin) else 0.0,
                {name: values[n] for name, values in parts.items() if math.isfinite(values[n])},
                whole[n] if math.isfinite(margin) else 0.0,
            )
            for n, margin in enumerate(margins)
        ]
