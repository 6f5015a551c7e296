"""Whether the answers to audits can be trusted, labeller by labeller: people, a judge, or whoever else answers.

    ties        so many of its answers are ties that next to nothing can be read from them
    one side    it chose the answer on one side, whichever it was; sides are drawn by lot
    again       asked the same comparison a second time, it hardly answers as before

Each is looked at over the round, and over the whole run. Honest people tie, favour a side and err a little, so each has
an allowance, and a finding is what chance does not explain beyond it. Whether an answer is right is not looked at: that
is for `people/quality.py`, which puts labellers beside each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass

from holdfast.guard.audit import AuditPair
from holdfast.preferences.comparison import Choice
from holdfast.statistics import binomial_tail, wilson
from holdfast.text import counted

# Error level of a finding. The allowances are wide, so that honest labellers stay far below it.
RARE = 0.005
# Whoever ties less often than this still says something with the rest.
MOST_TIES = 0.75
# A side that is chosen a little more often is a habit; so many points above one half are allowed.
SIDE = 0.1
# Easy comparisons are asked again. Somebody who errs in a quarter of them answers 75% as before, and a coin 50%.
LEAST_AGAIN = 0.6


@dataclass(frozen=True)
class Habits:
    """How a labeller has answered pairs of two different answers: `pairs` in all, ties, and the first side."""

    pairs: int = 0
    ties: int = 0
    first: int = 0

    def __add__(self, other: Habits) -> Habits:
        return Habits(self.pairs + other.pairs, self.ties + other.ties, self.first + other.first)


@dataclass(frozen=True)
class AskedAgain:
    """Comparisons that a labeller was asked a second time, and how many it answered as before, a tie as half."""

    same: float
    asked: int


ByLabeller = Mapping[str, Habits]


@dataclass(frozen=True)
class Trust:
    """What was found of each labeller that cannot be trusted, and the share of the round's pairs only they answered."""

    findings: Mapping[str, tuple[str, ...]]
    share: float

    @property
    def unreliable(self) -> bool:
        """Whether most of the round's answers are theirs."""
        return self.share > 0.5

    def words(self) -> list[str]:
        """What is to be said of each."""
        return [f"{labeller} {' and '.join(found)}" for labeller, found in self.findings.items()]


TRUSTED = Trust({}, 0.0)


def habits_of(pairs: Iterable[AuditPair]) -> dict[str, Habits]:
    """How each labeller has answered these pairs. Of two answers that are the same nobody can prefer one."""
    habits: dict[str, Habits] = {}
    for pair in pairs:
        for label in () if pair.alike else pair.labels:
            one = Habits(1, int(label.choice == Choice.TIE), int(label.choice == Choice.A))
            habits[label.labeller] = habits.get(label.labeller, Habits()) + one
    return habits


def added(one: ByLabeller, other: ByLabeller) -> dict[str, Habits]:
    """Both together."""
    return {name: one.get(name, Habits()) + other.get(name, Habits()) for name in sorted(one.keys() | other.keys())}


def trust_in(pairs: Sequence[AuditPair], before: ByLabeller, again: Mapping[str, AskedAgain]) -> Trust:
    """What can be said of those who answered a round's pairs; `before` is how they answered in earlier rounds."""
    now = habits_of(pairs)
    whole = added(before, now)
    findings = {name: found for name in now if (found := findings_of(now[name], whole[name], again.get(name)))}
    untrusted = sum(bool(pair.labels) and all(x.labeller in findings for x in pair.labels) for pair in pairs)
    return Trust(findings, untrusted / len(pairs) if pairs else 0.0)


def findings_of(now: Habits, whole: Habits, again: AskedAgain | None) -> tuple[str, ...]:
    """What is wrong with a labeller's answers, in words with their number; nothing, as a rule."""
    spans = [habit for habit in dict.fromkeys((now, whole)) if habit.pairs]
    found = [next(filter(None, map(look, spans)), "") for look in (_tied, _one_sided)]
    if again is not None and again.asked and wilson(again.same, again.asked).high < LEAST_AGAIN:
        of = counted(again.asked, "comparison that was", "comparisons that were")
        found.append(f"answered {again.same:g} of {of} asked again as before")
    return tuple(filter(None, found))


def _tied(habit: Habits) -> str:
    if binomial_tail(habit.ties, habit.pairs, MOST_TIES) >= RARE:
        return ""
    return f"answered {habit.ties:,} of {counted(habit.pairs, 'pair')} with a tie"


def _one_sided(habit: Habits) -> str:
    decided = habit.pairs - habit.ties
    most = max(habit.first, decided - habit.first)
    if not decided or binomial_tail(most, decided, 0.5 + SIDE) >= RARE:
        return ""
    side = "first" if 2 * habit.first > decided else "second"
    return f"chose the {side} answer in {most:,} of {counted(decided, 'pair')}, whichever it was"


def habits_state(habits: ByLabeller) -> dict[str, list[int]]:
    """As a checkpoint holds them."""
    return {name: list(astuple(habit)) for name, habit in sorted(habits.items())}
