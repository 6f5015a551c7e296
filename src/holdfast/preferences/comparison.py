"""What people are asked and what they answer: prompts, responses with provenance, comparisons, labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, get_args

from holdfast.models.prompt import Prompt


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A prompt with an answer that supervised fine-tuning imitates."""

    prompt: Prompt
    response: str


@dataclass(frozen=True, slots=True)
class PreferencePair:
    """Two answers to one prompt, of which the first was preferred."""

    prompt: Prompt
    chosen: str
    rejected: str


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


# Why a comparison was asked: for the first version of the ensemble, in a round, to audit the policy, again, to check a
# labeller, about answers that fooled the ensemble, to measure or to probe a stage of a pipeline; it came with data; or
# it is a pair of an audit that the judge alone answers.
Purpose = Literal[
    "first", "training", "audit", "repeat", "check", "adversarial", "measure", "probe", "imported", "judged"
]
UNASKED: tuple[Purpose, ...] = ("check", "judged")  # what counts as nothing that the run has asked people
PURPOSES: tuple[Purpose, ...] = get_args(Purpose)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two responses to one prompt. The id is derived from the run, so asking twice stores once.

    `run` is the key of the run that asked it, and `repeats` the id of the comparison that it asks again.
    """

    id: str
    prompt: Prompt
    a: Response
    b: Response
    round: int
    purpose: Purpose = "training"
    run: str = ""
    repeats: str | None = None

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


# What a choice is worth to the first side.
WORTH = {Choice.A: 1.0, Choice.TIE: 0.5, Choice.B: 0.0}


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
        total = sum(label.weight for label in self.labels)
        return sum(label.weight * WORTH[label.choice] for label in self.labels) / total

    @property
    def weight(self) -> float:
        """How much the comparison counts: as much as the weightiest of its labels."""
        return max(label.weight for label in self.labels)
