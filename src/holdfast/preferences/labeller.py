"""Who answers comparisons: what a labeller is, and a function as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from holdfast.errors import HoldfastError, Interrupted, OwnCodeError
from holdfast.models.prompt import plain_text
from holdfast.preferences.comparison import Choice, Comparison, Label, Purpose

# Prompt, one answer, the other answer -> "a", "b" or "tie".
Ask = Callable[[str, str, str], str]
# What somebody is called who has not said it: it may be a rule, a model or a person.
SOMEBODY = "the labeller"


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

    def gather(self, comparisons: Sequence[Comparison], claims: Sequence[float | None], reason: str) -> None:
        """Wait until stored comparisons are answered, or until waiting longer is no use.

        `claims` are the ensemble's probabilities of the first side, to be shown after an answer and never before.
        `reason` says what they are asked for.
        """
        ...

    def answers_to(self, comparison_id: str, purpose: Purpose) -> int:
        """How many answers are asked for: one, or a second opinion as well."""
        ...


@runtime_checkable
class SecondedLabeller(Protocol):
    """A labeller with a judge beside it, which answers any comparison beside people or in their place."""

    seconded: bool

    def second(self, comparisons: Sequence[Comparison]) -> Mapping[str, Choice]:
        """What the judge says of stored comparisons, by their ids; those that it gave no answer to are missing."""
        ...

    def ask_again(self, comparisons: Sequence[Comparison]) -> Mapping[str, Choice]:
        """What it says of them now, whatever it has said before."""
        ...


def seconded(labeller: object) -> SecondedLabeller | None:
    """The labeller, where it has a judge beside it."""
    return labeller if isinstance(labeller, SecondedLabeller) and labeller.seconded else None


def answers_of(labeller: Labeller, comparisons: Sequence[Comparison]) -> list[Label]:
    """What a labeller says, which may be anyone's code: checked, and where it fails told with the place."""
    who = f"The labeller {labeller.name}"
    try:
        labels = list(labeller.label(comparisons))
    except (HoldfastError, Interrupted):
        raise
    except (Exception, SystemExit) as error:
        raise OwnCodeError(f"{who} failed", error) from error
    asked = {c.id for c in comparisons}
    for label in labels:
        if not isinstance(label, Label) or label.choice not in tuple(Choice):
            answer = label.choice if isinstance(label, Label) else label
            raise HoldfastError(f"{who} answered {answer!r:.60}; use a Label with Choice.A, Choice.B or Choice.TIE.")
        if label.comparison_id not in asked:
            raise HoldfastError(f"{who} answered a comparison it was not asked about.")
    return labels


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


def called(labeller: object) -> str:
    """What a labeller is called in a sentence: people, the judge, the simulated labeller; its own word, or ours."""
    word = getattr(labeller, "called", None)
    return word if isinstance(word, str) else SOMEBODY


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
