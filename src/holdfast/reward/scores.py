"""What a reward source is: prompts and answers in; scores by component, and what could not be scored, out.

    Asked -> ScoreSource.score -> Scores

An answer that could not be scored is never a zero: its score is NaN here, with a reason, and whoever trains on scores
leaves it out of its group's baseline and of the loss.

Shapes: B answers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from holdfast.models.prompt import Prompt
from holdfast.reward.outcome import OneScore, Unscored, read_outcome
from holdfast.text import counted

# What a row of the prompts file has beside the prompt: a test's expected value, a schema, whatever a reward reads.
Columns = Mapping[str, Any]

# Reasons that are told of a batch: the commonest ones.
MOST_REASONS = 3


@dataclass(frozen=True)
class Asked:
    """Answers to be scored, each with its prompt and the further columns of the prompt's row.

    Answers to one prompt stand side by side, `group` of them. `finished` says which came to their end; empty: all.
    """

    prompts: Sequence[Prompt]
    answers: Sequence[str]
    columns: Sequence[Columns] = ()
    finished: Sequence[bool] = ()
    group: int = 1

    def __len__(self) -> int:
        return len(self.answers)

    def columns_of(self, row: int) -> Columns:
        return self.columns[row] if self.columns else {}

    def among(self, rows: Sequence[int]) -> Asked:
        """Some of them; a group may be cut, so each stands by itself."""
        return Asked(
            [self.prompts[i] for i in rows],
            [self.answers[i] for i in rows],
            [self.columns[i] for i in rows] if self.columns else (),
            [self.finished[i] for i in rows] if self.finished else (),
        )


@dataclass(frozen=True)
class Scores:
    """The scores of a batch: the reward, its components by name, and why some answers have none (by row).

    What could not be scored is NaN. A source of one component need not name it. `weights` say how much of the reward
    one unit of a component is; of a component without one that is not known. `whole_B` is what the reward was before
    components were counted for less, where some are.
    """

    total_B: Tensor
    components: Mapping[str, Tensor] = field(default_factory=dict)
    unscored: Mapping[int, str] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    whole_B: Tensor | None = None

    @property
    def undiscounted_B(self) -> Tensor:
        """The reward as its source gives it."""
        return self.total_B if self.whole_B is None else self.whole_B

    @property
    def scored_B(self) -> Tensor:
        """Which answers have a score."""
        return ~self.total_B.isnan()

    @property
    def share_unscored(self) -> float:
        return len(self.unscored) / max(1, len(self.total_B))

    def reasons(self) -> list[str]:
        """Why answers have no score, the commonest reason first, each with its number."""
        common = Counter(self.unscored.values()).most_common(MOST_REASONS)
        return [f"{counted(count, 'answer')}: {why}" for why, count in common]


class ScoreSource(Protocol):
    """Whatever scores answers. It does not raise for an answer that it cannot score: that one is left unscored."""

    @property
    def name(self) -> str: ...

    def score(self, asked: Asked) -> Scores:
        """One score for each answer."""
        ...

    def close(self) -> None:
        """Let go of processes and connections."""
        ...


@dataclass(frozen=True)
class Discount:
    """How much a component of a reward counts, before something was done about it and after."""

    component: str
    before: float
    after: float


class AdjustableSource(ScoreSource, Protocol):
    """A reward source whose components can be counted for less while it is in use; that is all the state it has."""

    @property
    def compares(self) -> bool:
        """Whether a single answer has no score: then a pair is asked about as a group of two."""
        ...

    @property
    def part(self) -> str:
        """What one of its components is called."""
        ...

    def discount(self, component: str, factor: float) -> Discount | None:
        """Count a component `factor` times as much as now; an empty name is the whole reward. None: there is none."""
        ...

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: Mapping[str, Any]) -> None: ...


def scores_of(outcomes: Sequence[object], weights: Mapping[str, float] | None = None) -> Scores:
    """Scores from what a source gave for each answer: a number, numbers by component, or why there is none."""
    read = [read_outcome(outcome) for outcome in outcomes]
    scored = [one if isinstance(one, OneScore) else OneScore(math.nan) for one in read]
    names = dict.fromkeys(name for one in scored for name in one.components)
    return Scores(
        numbers([one.score for one in scored]),
        {name: numbers([one.components.get(name, math.nan) for one in scored]) for name in names},
        {row: one.why for row, one in enumerate(read) if isinstance(one, Unscored)},
        dict.fromkeys(names, 1.0) if weights is None else weights,
    )


def numbers(values: Sequence[float]) -> Tensor:
    """values_B in single precision, as rewards are worked with."""
    return torch.tensor(list(values), dtype=torch.float32)
