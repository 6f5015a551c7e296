"""Counting components of a reward for less while it is in use.

    reward' = F (reward - sum_c (1 - f_c) w_c c)

c are the components, w_c how much of the reward one unit of c is, f_c and F the factors of c and of the whole reward, 1
until something is discounted. Components stay as the source gives them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.reward.scores import Asked, Discount, Scores
from holdfast.reward.sources.plain import PlainSource

WHOLE = ""


@dataclass
class Factors:
    """The factor of each component that counts for less than it did, by name; an empty name is the whole reward."""

    of: dict[str, float] = field(default_factory=dict)

    def get(self, component: str) -> float:
        return self.of.get(component, 1.0)

    def discount(self, component: str, factor: float) -> Discount:
        before = self.get(component)
        self.of[component] = before * factor
        return Discount(component, before, self.of[component])

    def state(self) -> dict[str, Any]:
        return {"factors": dict(self.of)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.of = {str(name): float(factor) for name, factor in state["factors"].items()}

    def applied(self, scores: Scores) -> Scores:
        """Scores with the components counted by their factors."""
        total_B = scores.total_B
        for name, factor in self.of.items():
            if name in scores.components and name in scores.weights:
                total_B = total_B - (1.0 - factor) * scores.weights[name] * scores.components[name].nan_to_num(0.0)
        whole_B = scores.undiscounted_B if self.of else None
        return replace(scores, total_B=self.get(WHOLE) * total_B, whole_B=whole_B)


class AdjustedSource:
    """A source whose components can be counted for less."""

    def __init__(self, source: PlainSource) -> None:
        self.name, self._source = source.name, source
        self.compares, self.part = source.nature.compares, source.nature.part
        self._factors = Factors()
        self._known = {WHOLE}

    def score(self, asked: Asked) -> Scores:
        """The source's scores, with components counted by their factors."""
        scores = self._source.score(asked)
        self._known |= set(scores.weights)
        return self._factors.applied(scores)

    def discount(self, component: str, factor: float) -> Discount | None:
        """None for a component that the source has not given so far, or that is not a share of its reward."""
        return self._factors.discount(component, factor) if component in self._known else None

    def state(self) -> dict[str, Any]:
        return self._factors.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        self._factors.restore(state)
        self._known |= set(self._factors.of)

    def close(self) -> None:
        self._source.close()
