"""Whoever watches a run and cannot touch it: the lab, which knows the truth, watches through this."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.models.prompt import Prompt


@dataclass(frozen=True)
class Answer:
    """A sampled answer as people see it."""

    text: str
    finished: bool


class Observer(Protocol):
    """Someone who is told what happens, and is never asked."""

    def after_step(self, step: int, round: int, prompts: Sequence[Prompt], answers: Sequence[Answer]) -> None: ...

    def after_samples(self, step: int, round: int, prompts: Sequence[Prompt], answers: Sequence[Answer]) -> None: ...

    def after_round(
        self, step: int, round: int, answer: Callable[[Sequence[Prompt], int], Sequence[Answer]]
    ) -> None: ...

    def mark(self, places: dict[str, Any]) -> None:
        """Write into `places` how far each of its files has come, by name, for a checkpoint to store."""

    def rewind(self, places: Mapping[str, Any]) -> None:
        """Take its files back to where `mark` found them; those that are not in `places` were not there yet."""

    def close(self) -> None:
        """Close its files."""


@dataclass
class Audience:
    """All observers of a run, told together. What it saves of them is how far their files have come."""

    observers: Sequence[Observer] = ()
    # As the checkpoint had them: a run that goes on unobserved keeps the places in files that nobody writes then.
    places: dict[str, Any] = field(default_factory=dict)

    def after_step(self, step: int, round: int, prompts: Sequence[Prompt], answers: Sequence[Answer]) -> None:
        for observer in self.observers:
            observer.after_step(step, round, prompts, answers)

    def after_samples(self, step: int, round: int, prompts: Sequence[Prompt], answers: Sequence[Answer]) -> None:
        for observer in self.observers:
            observer.after_samples(step, round, prompts, answers)

    def after_round(self, step: int, round: int, answer: Callable[[Sequence[Prompt], int], Sequence[Answer]]) -> None:
        for observer in self.observers:
            observer.after_round(step, round, answer)

    def state(self) -> dict[str, Any]:
        for observer in self.observers:
            observer.mark(self.places)
        return dict(self.places)

    def restore(self, places: Mapping[str, Any]) -> None:
        """Take the observers' files back; a file that is no longer what the checkpoint was saved with is refused."""
        for observer in self.observers:
            observer.rewind(places)
        self.places = dict(places)

    def close(self) -> None:
        for observer in self.observers:
            observer.close()
