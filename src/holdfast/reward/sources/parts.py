"""Several sources in one reward: terms that are weighted and added up, and gates that have to be passed.

    reward = sum over terms of weight_i n_i(s_i)                    of an answer that passes every gate
           = min(0, the lowest reward of an answer that passes)     of one that does not

A gate is passed by a score above the gate's. n is nothing, or (s - mean) / standard deviation over the answers of the
group, or of the batch, that have a score and pass the gates; 0 where all of them are the same. Where answers stand by
themselves (groups of one, as in an audit), n over the group is n over the batch.

Shapes: B answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from holdfast.config.reward_source import Normalise, RewardPart
from holdfast.reward.scores import Asked, Discount, Scores
from holdfast.reward.sources.adjusted import WHOLE, Factors
from holdfast.reward.sources.plain import PlainSource

# Scores that differ by less than this share of their size are the same.
SAME = 1e-6


@dataclass
class OpenPart:
    """A part with its source; parts that are the same source share one, which is asked once."""

    part: RewardPart
    source: PlainSource
    factors: Factors = field(default_factory=Factors)
    criteria: set[str] = field(default_factory=set)


class PartsSource:
    """Several sources in one reward; a component is `part`, or `part/component` where the part has several."""

    part = "component"

    def __init__(self, parts: Sequence[OpenPart]) -> None:
        self._parts = {open_part.part.name: open_part for open_part in parts}
        self.name = " + ".join(self._parts)
        self._factors = Factors()

    @property
    def compares(self) -> bool:
        """Whether any of them can only compare answers."""
        return any(source.nature.compares for source in self._sources())

    def score(self, asked: Asked) -> Scores:
        """Every source is asked about every answer, so that components are there for those that fail a gate as well."""
        scores = self._scores(asked)
        counted = self._total(scores, asked)
        return replace(counted, whole_B=self._total(scores, asked, whole=True).total_B) if self._lessened else counted

    def _total(self, scores: Mapping[str, Scores], asked: Asked, whole: bool = False) -> Scores:
        """The reward of what each part says; of the whole of it, no component counts for less than it did at first."""
        passing_B, unscored = self._gates(scores, len(asked))
        factors = Factors() if whole else self._factors
        sum_B = torch.zeros(len(asked))
        for name, open_part in self._parts.items():
            if open_part.part.gate is None:
                raw = scores[name] if whole else open_part.factors.applied(scores[name])
                missing = {row: f"{name}: {why}" for row, why in raw.unscored.items() if passing_B[row]}
                unscored = {**missing, **unscored}
                weight = open_part.part.weight * factors.get(name)
                in_B = passing_B & raw.scored_B
                sum_B += weight * normalised(raw.total_B, in_B, open_part.part.normalise, asked.group)
        out_B = torch.tensor([row in unscored for row in range(len(asked))], dtype=torch.bool)
        in_B = passing_B & ~out_B
        floor = min(0.0, float(sum_B[in_B].min())) if bool(in_B.any()) else 0.0
        total_B = torch.where(passing_B, sum_B, torch.full_like(sum_B, floor)).masked_fill(out_B, math.nan)
        return Scores(factors.get(WHOLE) * total_B, self._components(scores), dict(sorted(unscored.items())))

    @property
    def _lessened(self) -> bool:
        """Whether anything counts for less than it did at first."""
        return bool(self._factors.of) or any(open_part.factors.of for open_part in self._parts.values())

    def discount(self, component: str, factor: float) -> Discount | None:
        """Of a part, or of a component of one; None where there is none such, and of a gate, which has no weight."""
        name, slash, inner = component.partition("/")
        open_part = self._parts.get(name)
        if component == WHOLE:
            return self._factors.discount(WHOLE, factor)
        if open_part is None or open_part.part.gate is not None:
            return None
        if not slash:
            return self._factors.discount(name, factor)
        if inner not in open_part.criteria:
            return None
        done = open_part.factors.discount(inner, factor)
        return Discount(component, done.before, done.after)

    def state(self) -> dict[str, Any]:
        inner = {name: open_part.factors.state() for name, open_part in self._parts.items()}
        return {**self._factors.state(), "parts": inner}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._factors.restore(state)
        for name, open_part in self._parts.items():
            open_part.factors.restore(state["parts"][name])
            open_part.criteria |= set(open_part.factors.of)

    def close(self) -> None:
        for source in self._sources():
            source.close()

    def _sources(self) -> list[PlainSource]:
        return list({id(open_part.source): open_part.source for open_part in self._parts.values()}.values())

    def _scores(self, asked: Asked) -> dict[str, Scores]:
        """What each part says. Most of them wait for somebody, so they wait side by side."""
        sources = self._sources()
        with ThreadPoolExecutor(len(sources)) as pool:
            by_source = dict(zip(map(id, sources), pool.map(lambda source: source.score(asked), sources), strict=True))
        scores = {name: by_source[id(open_part.source)] for name, open_part in self._parts.items()}
        for name, open_part in self._parts.items():
            open_part.criteria |= set(scores[name].weights)
        return scores

    def _gates(self, scores: Mapping[str, Scores], count: int) -> tuple[Tensor, dict[int, str]]:
        """Which answers pass every gate, and those of which a gate cannot say so."""
        passing_B, unscored = torch.ones(count, dtype=torch.bool), dict[int, str]()
        failed_B = torch.zeros(count, dtype=torch.bool)
        for name, open_part in self._parts.items():
            if open_part.part.gate is not None:
                passing_B &= scores[name].total_B > open_part.part.gate  # NaN is above nothing
                failed_B |= scores[name].total_B <= open_part.part.gate
                unscored |= {row: f"{name}: {why}" for row, why in scores[name].unscored.items()}
        return passing_B, {row: why for row, why in unscored.items() if not failed_B[row]}

    def _components(self, scores: Mapping[str, Scores]) -> dict[str, Tensor]:
        components = dict[str, Tensor]()
        for name, given in scores.items():
            named = {f"{name}/{inner}": values_B for inner, values_B in given.components.items()}
            components |= named or {name: given.total_B}
        return components


def normalised(scores_B: Tensor, in_B: Tensor, over: Normalise, group: int) -> Tensor:
    """What a part adds for each answer that is in; 0 for the others."""
    if over == "none":
        return torch.where(in_B, scores_B, torch.zeros_like(scores_B))
    size = group if over == "group" and group > 1 else max(1, len(scores_B))
    pieces = [slice(start, start + size) for start in range(0, len(scores_B), size)]
    return torch.cat([standardised(scores_B[piece], in_B[piece]) for piece in pieces] or [torch.zeros(0)])


def standardised(scores_B: Tensor, in_B: Tensor) -> Tensor:
    """(s - mean) / standard deviation over those that are in; 0 for the others, and where all are the same."""
    inside = scores_B[in_B].double()
    out_B = torch.zeros_like(scores_B)
    if len(inside) == 0:
        return out_B
    sd = inside.std(unbiased=False)
    if float(sd) > SAME * float(inside.abs().max()):
        out_B[in_B] = ((inside - inside.mean()) / sd).to(out_B)
    return out_B


def opened_parts(parts: Sequence[RewardPart], open_one: Callable[[str, str], PlainSource]) -> PartsSource:
    """The parts with their sources; `open_one` opens a source by its words and the setting that has them."""
    sources: dict[str, PlainSource] = {}
    try:
        for part in parts:
            if part.source not in sources:
                sources[part.source] = open_one(part.source, f"reward.parts.{part.name}.source")
    except BaseException:
        for source in sources.values():
            source.close()
        raise
    return PartsSource([OpenPart(part, sources[part.source]) for part in parts])
