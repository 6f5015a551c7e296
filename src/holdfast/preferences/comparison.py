"""What people are asked and what they answer: prompts, responses with provenance, comparisons, labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, Protocol, runtime_checkable

from holdfast.models.prompt import Prompt


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A prompt with an answer that supervised fine-tuning imitates."""

    prompt: Prompt
    response: str


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a response came from: which policy, in which round, drawn with which seed."""

    policy_version: str
    round: int
    seed: int


@dataclass(frozen=True, slots=True)
class Response:
    """An answer as text and, where a model of ours sampled it, the exact tokens."""

    text: str
    provenance: Provenance
    token_ids: tuple[int, ...] | None = None
    finished: bool = True


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two responses to one prompt. The id is derived from the run, so asking twice stores once."""

    id: str
    prompt: Prompt
    a: Response
    b: Response
    round: int

    def swap(self) -> Comparison:
        """The same question with its sides exchanged."""
        return replace(self, a=self.b, b=self.a)


class Choice(StrEnum):
    """Which of two answers is preferred."""

    A = "a"
    B = "b"
    TIE = "tie"

    def swap(self) -> Choice:
        return {Choice.A: Choice.B, Choice.B: Choice.A, Choice.TIE: Choice.TIE}[self]


@dataclass(frozen=True, slots=True)
class Label:
    """One person's (or judge's, or simulated labeller's) answer to one comparison. Only ever added."""

    comparison_id: str
    labeller: str
    choice: Choice
    weight: float = 1.0  # how much it counts: less where its labeller has been found unreliable


@dataclass(frozen=True, slots=True)
class LabelledComparison:
    """A comparison with the answer that counts of each person who answered it."""

    comparison: Comparison
    labels: tuple[Label, ...]

    def __post_init__(self) -> None:
        if not self.labels or any(label.comparison_id != self.comparison.id for label in self.labels):
            raise ValueError(f"Comparison {self.comparison.id} needs at least one label, and only labels of its own.")

    @property
    def share_a(self) -> float:
        """The share of labellers, by weight, who prefer a; a tie counts as half."""
        worth = {Choice.A: 1.0, Choice.TIE: 0.5, Choice.B: 0.0}
        total = sum(label.weight for label in self.labels)
        return sum(label.weight * worth[label.choice] for label in self.labels) / total

    @property
    def weight(self) -> float:
        """How much the comparison counts: as much as the weightiest of its labels."""
        return max(label.weight for label in self.labels)


class Labeller(Protocol):
    """Whoever answers comparisons: people, a judge model, or a world's simulated labeller."""

    name: str

    def label(self, comparisons: Sequence[Comparison]) -> Sequence[Label]:
        """Answer each comparison. The same comparison asked again gets the same answer."""
        ...


# What a comparison is asked for: to measure the policy before going on, or to train the ensemble.
Purpose = Literal["audit", "training"]


@runtime_checkable
class PatientLabeller(Protocol):
    """A labeller whose answers come into the store by themselves, sooner or later: people, and who works with them."""

    name: str

    def gather(self, comparisons: Sequence[Comparison], claims: Sequence[float | None], purpose: Purpose) -> None:
        """Wait until stored comparisons are answered, or until waiting longer is no use.

        `claims` are the ensemble's probabilities of the first side, to be shown after an answer and never before.
        """
        ...
