"""Who answers comparisons: what a labeller is, and a function as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from holdfast.errors import HoldfastError
from holdfast.models.prompt import plain_text
from holdfast.preferences.comparison import Choice, Comparison, Label

# Prompt, one answer, the other answer -> "a", "b" or "tie".
Ask = Callable[[str, str, str], str]


class Labeller(Protocol):
    """Whoever answers comparisons: people, a judge model, or a world's simulated labeller."""

    name: str

    def label(self, comparisons: Sequence[Comparison]) -> Sequence[Label]:
        """Answer each comparison. The same comparison asked again gets the same answer."""
        ...


@runtime_checkable
class PatientLabeller(Protocol):
    """A labeller whose answers come into the store by themselves, sooner or later: people, and who works with them."""

    name: str

    def gather(self, comparisons: Sequence[Comparison], claims: Sequence[float | None]) -> None:
        """Wait until stored comparisons are answered, or until waiting longer is no use.

        `claims` are the ensemble's probabilities of the first side, to be shown after an answer and never before.
        """
        ...


class CallableLabeller:
    """A function that is shown a prompt and two answers, and says "a", "b" or "tie"; it is not told whose they are."""

    def __init__(self, ask: Ask, name: str = "callable") -> None:
        self._ask, self.name = ask, name

    def label(self, comparisons: Sequence[Comparison]) -> Sequence[Label]:
        return [Label(c.id, self.name, self._choose(c)) for c in comparisons]

    def _choose(self, comparison: Comparison) -> Choice:
        choice = self._ask(plain_text(comparison.prompt), comparison.a.text, comparison.b.text)
        try:
            return Choice(choice)
        except ValueError as error:
            raise HoldfastError(f'The labeller said {choice!r}; it has to say "a", "b" or "tie".') from error


def labeller_of(labeller: Labeller | Ask) -> Labeller:
    """What was given, as a labeller."""
    if isinstance(labeller, PatientLabeller):
        raise HoldfastError(
            "People on Holdfast's own pages answer runs of Holdfast's only; "
            "give a function, a judge, or a world's labeller."
        )
    label = getattr(labeller, "label", None)
    if callable(label) and isinstance(getattr(labeller, "name", None), str):
        return labeller  # type: ignore[return-value]
    if callable(labeller):
        return CallableLabeller(labeller)
    raise HoldfastError("The labeller has to be a function of (prompt, a, b), or an object with a name and label().")
