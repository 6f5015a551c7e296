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
from holdfast.text import counted

# What a row of the prompts file has beside the prompt: a test's expected value, a schema, whatever a reward reads.
Columns = Mapping[str, Any]

# No reward that means something is larger; a 1e30 would be all that its batch learns from.
LARGEST = 1e6
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

    What could not be scored is NaN. A source of one component need not name it.
    """

    total_B: Tensor
    components: Mapping[str, Tensor] = field(default_factory=dict)
    unscored: Mapping[int, str] = field(default_factory=dict)

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


def scores_of(outcomes: Sequence[object]) -> Scores:
    """Scores from what a source gave for each answer: a number, numbers by component, or a reason in words.

    Of components, `score` is the reward where it is among them; else the reward is their sum.
    """
    total, parts = [math.nan] * len(outcomes), list[Mapping[str, float]]()
    unscored: dict[int, str] = {}
    for row, outcome in enumerate(outcomes):
        read = read_outcome(outcome)
        if isinstance(read, str):
            unscored[row] = read
            parts.append({})
            continue
        total[row], by_name = read
        parts.append(by_name)
    names = dict.fromkeys(name for by_name in parts for name in by_name)
    components = {name: numbers([by_name.get(name, math.nan) for by_name in parts]) for name in names}
    return Scores(numbers(total), components, unscored)


def read_outcome(outcome: object) -> tuple[float, dict[str, float]] | str:
    """The reward and its components, or why there are none."""
    if isinstance(outcome, str):
        return outcome
    if not isinstance(outcome, Mapping):
        value = number_of(outcome)
        return value if isinstance(value, str) else (value, {})
    read = {str(name): number_of(value) for name, value in outcome.items()}
    wrong = next((f"{name}: {value}" for name, value in read.items() if isinstance(value, str)), None)
    if wrong is not None or not read:
        return wrong or "the reward gave no component"
    values = {name: value for name, value in read.items() if isinstance(value, float)}
    components = {name: value for name, value in values.items() if name != "score"}
    return values["score"] if "score" in values else math.fsum(components.values()), components


def number_of(value: object) -> float | str:
    """A score as a number, or why it is none."""
    if value is None:
        return "the reward gave None"
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return f"the reward gave {type(value).__name__}, which is no number"
    if math.isnan(number):
        return "the reward gave NaN"
    if abs(number) > LARGEST:
        return f"the reward gave {number:g}, beyond any score ({LARGEST:g})"
    return number


def numbers(values: Sequence[float]) -> Tensor:
    """values_B in single precision, as rewards are worked with."""
    return torch.tensor(list(values), dtype=torch.float32)
