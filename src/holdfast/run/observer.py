"""Whoever watches a run and cannot touch it: the lab, which knows the truth, watches through this."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

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

    def rewind(self, step: int) -> None: ...


@dataclass(frozen=True)
class Audience:
    """All observers of a run, told together."""

    observers: Sequence[Observer] = ()

    def after_step(self, step: int, round: int, prompts: Sequence[Prompt], answers: Sequence[Answer]) -> None:
        for observer in self.observers:
            observer.after_step(step, round, prompts, answers)

    def after_samples(self, step: int, round: int, prompts: Sequence[Prompt], answers: Sequence[Answer]) -> None:
        for observer in self.observers:
            observer.after_samples(step, round, prompts, answers)

    def after_round(self, step: int, round: int, answer: Callable[[Sequence[Prompt], int], Sequence[Answer]]) -> None:
        for observer in self.observers:
            observer.after_round(step, round, answer)

    def rewind(self, step: int) -> None:
        for observer in self.observers:
            observer.rewind(step)
