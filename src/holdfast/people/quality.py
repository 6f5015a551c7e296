"""Who labels reliably: position, length, agreement, check items, speed and drift, for each labeller beside the others.

Each is a test with an allowance, since honest people differ: they favour a side a little, like length a little more or
less, and are a little better or worse than the rest. The error level is shared out over the tests.

Who is found unreliable is no measure for the others, so the worst one is set aside first and the rest are looked at
again, until nobody is left to find.

    position    the left side was chosen so often that even a taste of 10 points for a side does not explain it
    length      the longer answer is chosen more (or less) often than by the others, by more than 15 points
    agreement   the labeller agrees with the others less than they do among themselves, by more than 3 points
    checks      items with known answers: fewer right than an honest 80% makes likely
    speed       most answers came faster than anybody reads
    drift       the second half agrees with the others less than the first half, by more than 3 points
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, median

from holdfast.people.agreement import krippendorff_alpha, pairwise, worth
from holdfast.statistics import Share, binomial_tail
from holdfast.text import counted

SIDE = 0.1
LENGTH = 0.15
AGREEMENT = 0.03
CHECKS_RIGHT = 0.8
QUICK_SHARE = 0.5
TESTS = 6
# Probability that any one honest labeller is found unreliable by chance, over all tests.
LEVEL = 0.01
# Fewer than these and a test says nothing: of all answers, of those that others gave too, of check items.
FEWEST_ANSWERS = 30
FEWEST_SHARED = 12
FEWEST_CHECKS = 6
# Nobody answers faster than this, nor skims more than this: about 10,000 words a minute.
FASTEST_SECONDS = 0.4
CHARACTERS_PER_SECOND = 1000.0
# Lengths that differ by less than this share are the same to a reader.
SAME_LENGTH = 0.1


@dataclass(frozen=True)
class GivenAnswer:
    """One person's answer to one comparison, with how it came about as far as that is known."""

    labeller: str
    item: str
    choice: str  # a, b or tie
    order: float  # when, in any unit
    left: str | None = None  # the side that was shown on the left
    length_a: int = 0
    length_b: int = 0
    seconds: float | None = None
    expected: str | None = None  # the known answer of a check item
    measured_only: bool = False  # a second opinion that is not a label

    @property
    def longer(self) -> str | None:
        """The side that is clearly longer."""
        low, high = sorted((self.length_a, self.length_b))
        if high - low <= SAME_LENGTH * high:
            return None
        return "a" if self.length_a > self.length_b else "b"

    @property
    def too_quick(self) -> bool:
        characters = self.length_a + self.length_b
        return self.seconds is not None and self.seconds < FASTEST_SECONDS + characters / CHARACTERS_PER_SECOND


@dataclass(frozen=True)
class QualityMeasure:
    """One figure of a labeller; `finding` says what is wrong, and is empty where nothing is."""

    name: str
    value: float | None
    count: int
    beside: float | None = None  # the same of the others
    finding: str = ""
    strength: float = 0.0  # of the finding, in standard errors beyond what is allowed


@dataclass(frozen=True)
class LabellerQuality:
    """What is known of one labeller."""

    name: str
    answers: int
    seconds: float | None
    measures: tuple[QualityMeasure, ...]

    @property
    def findings(self) -> tuple[str, ...]:
        return tuple(measure.finding for measure in self.measures if measure.finding)

    @property
    def reliable(self) -> bool:
        return not self.findings

    def measure(self, name: str) -> QualityMeasure:
        return next(measure for measure in self.measures if measure.name == name)


@dataclass(frozen=True)
class TeamQuality:
    """What is known of all labellers together. `pairs` has agreement and count for every two of them."""

    alpha: float | None
    shared: int
    labellers: tuple[LabellerQuality, ...] = ()
    pairs: dict[tuple[str, str], tuple[float, int]] = field(default_factory=dict)

    @property
    def unreliable(self) -> tuple[LabellerQuality, ...]:
        return tuple(labeller for labeller in self.labellers if not labeller.reliable)


def team_quality(opinions: Iterable[GivenAnswer], fewest: int = FEWEST_ANSWERS, level: float = LEVEL) -> TeamQuality:
    """Every labeller beside the others; nothing is found of one with fewer than `fewest` answers."""
    everything = sorted(opinions, key=lambda one: one.order)
    by_labeller: dict[str, list[GivenAnswer]] = {}
    items: dict[str, dict[str, str]] = {}
    for one in everything:
        by_labeller.setdefault(one.labeller, []).append(one)
        if one.expected is None:
            items.setdefault(one.item, {})[one.labeller] = one.choice
    shared = {item: answers for item, answers in items.items() if len(answers) > 1}
    team = _Team(by_labeller, shared, fewest, level / TESTS)
    team.set_aside()
    people = {item: _labels_only(answers, by_labeller) for item, answers in shared.items()}
    return TeamQuality(
        alpha=krippendorff_alpha([list(answers.values()) for answers in people.values()]),
        shared=sum(len(answers) > 1 for answers in people.values()),
        labellers=tuple(team.quality(name) for name in sorted(by_labeller)),
        pairs=pairwise(shared),
    )


def _labels_only(answers: dict[str, str], by_labeller: dict[str, list[GivenAnswer]]) -> dict[str, str]:
    """Without second opinions that were only measured."""
    return {name: choice for name, choice in answers.items() if not by_labeller[name][0].measured_only}


class _Team:
    """All answers, by labeller and by item, so that each labeller can be put beside the others."""

    def __init__(
        self, by_labeller: dict[str, list[GivenAnswer]], shared: dict[str, dict[str, str]], fewest: int, level: float
    ) -> None:
        self.by_labeller, self.shared, self.fewest, self.level = by_labeller, shared, fewest, level
        self.lengths = {name: _longer_chosen(answers) for name, answers in by_labeller.items()}
        self.aside: set[str] = set()

    def set_aside(self) -> None:
        """Find the unreliable, the worst first, each beside those who are left."""
        while True:
            qualities = [self.quality(name) for name in self.by_labeller if name not in self.aside]
            bad = [quality for quality in qualities if not quality.reliable]
            if not bad:
                return
            worst = max(bad, key=lambda quality: max(m.strength for m in quality.measures))
            self.aside.add(worst.name)

    def beside(self, name: str) -> list[str]:
        """Those whom a labeller is compared with."""
        return [other for other in self.by_labeller if other != name and other not in self.aside]

    def worths(self, name: str) -> dict[str, list[float]]:
        """For each item that others answered too: how far the labeller agreed with each of them."""
        agreements: dict[str, list[float]] = {}
        for item, answers in self.shared.items():
            if name in answers:
                others = [choice for other, choice in answers.items() if other != name and other not in self.aside]
                if others:
                    agreements[item] = [worth(answers[name], choice) for choice in others]
        return agreements

    def quality(self, name: str) -> LabellerQuality:
        answers = self.by_labeller[name]
        times = [one.seconds for one in answers if one.seconds is not None]
        measures: tuple[QualityMeasure, ...] = (
            self.position(answers),
            self.length(name),
            self.agreement(name),
            self.checks(answers),
            self.speed(answers),
            self.drift(name, answers),
        )
        if len(answers) < self.fewest:
            measures = tuple(QualityMeasure(m.name, m.value, m.count, m.beside) for m in measures)
        return LabellerQuality(
            name=name,
            answers=len(answers),
            seconds=median(times) if times else None,
            measures=measures,
        )

    def position(self, answers: Sequence[GivenAnswer]) -> QualityMeasure:
        sides = [one.choice == one.left for one in answers if one.left is not None and one.choice != "tie"]
        left, count = sum(sides), len(sides)
        if not count:
            return QualityMeasure("position", None, 0, 0.5)
        z = _as_errors(binomial_tail(max(left, count - left), count, 0.5 + SIDE))
        side = "left" if 2 * left > count else "right"
        words = f"chose the {side} side {counted(max(left, count - left), 'time')} out of {count}"
        return self._measured("position", left / count, count, 0.5, words, z)

    def length(self, name: str) -> QualityMeasure:
        mine = self.lengths[name]
        others = [x for other in self.beside(name) for x in self.lengths[other]]
        share, rest = _mean(mine), _mean(others)
        if share is None or rest is None:
            return QualityMeasure("length", share, len(mine), rest)
        z = _apart(share, len(mine), rest, len(others), LENGTH)
        more = "more" if share > rest else "less"
        longer, usual = Share(share, len(mine)).of("pair"), Share(rest, len(others)).of("pair")
        words = f"prefers the longer answer in {longer}, {more} than the others in {usual}"
        return self._measured("length", share, len(mine), rest, words, z)

    def agreement(self, name: str) -> QualityMeasure:
        mine = [x for values in self.worths(name).values() for x in values]
        rest = self._among_others(name)
        share, beside = _mean(mine), _mean(rest)
        if share is None or beside is None or share >= beside or min(len(mine), len(rest)) < FEWEST_SHARED:
            return QualityMeasure("agreement", share, len(mine), beside)
        z = _apart(share, len(mine), beside, len(rest), AGREEMENT)
        own, theirs = Share(share, len(mine)).of("answer"), Share(beside, len(rest)).of("answer")
        words = f"agrees with the others in {own}, and they among themselves in {theirs}"
        return self._measured("agreement", share, len(mine), beside, words, z)

    def checks(self, answers: Sequence[GivenAnswer]) -> QualityMeasure:
        right = [worth(one.choice, one.expected) for one in answers if one.expected is not None]
        if not right:
            return QualityMeasure("checks", None, 0, CHECKS_RIGHT)
        correct, count = sum(right), len(right)
        if count < FEWEST_CHECKS:
            return QualityMeasure("checks", correct / count, count, CHECKS_RIGHT)
        z = _as_errors(binomial_tail(math.floor(count - correct), count, 1.0 - CHECKS_RIGHT))
        words = f"got {correct:g} of {count} check items right"
        return self._measured("checks", correct / count, count, CHECKS_RIGHT, words, z)

    def speed(self, answers: Sequence[GivenAnswer]) -> QualityMeasure:
        timed = [one.too_quick for one in answers if one.seconds is not None]
        if not timed:
            return QualityMeasure("speed", None, 0)
        quick, count = sum(timed), len(timed)
        z = _as_errors(binomial_tail(quick, count, QUICK_SHARE))
        words = f"answered {quick} of {counted(count, 'pair')} faster than they can be read"
        return self._measured("speed", quick / count, count, QUICK_SHARE, words, z)

    def drift(self, name: str, answers: Sequence[GivenAnswer]) -> QualityMeasure:
        """How far agreement with the others has changed from the first half of the shared items to the second."""
        worths = self.worths(name)
        in_order = [x for one in answers if one.expected is None for x in worths.get(one.item, [])]
        first, second = in_order[: len(in_order) // 2], in_order[len(in_order) // 2 :]
        before, after = _mean(first), _mean(second)
        if before is None or after is None or len(first) < FEWEST_SHARED:
            return QualityMeasure("drift", None, len(in_order))
        z = _apart(after, len(second), before, len(first), AGREEMENT) if after < before else 0.0
        was, now = Share(before, len(first)).of("answer"), Share(after, len(second)).of("answer")
        words = f"agreed with the others in {was} of the first half and in {now} of the second"
        return self._measured("drift", after - before, len(in_order), 0.0, words, z)

    def _measured(self, name: str, value: float, count: int, beside: float, words: str, z: float) -> QualityMeasure:
        """A figure, with the words about it where it is further off than chance and the allowance explain."""
        beyond_chance = z > NormalDist().inv_cdf(1.0 - self.level)
        return QualityMeasure(name, value, count, beside, words if beyond_chance else "", z if beyond_chance else 0.0)

    def _among_others(self, name: str) -> list[float]:
        """Agreement of the others with each other, on the items that they share without this one."""
        agreements = []
        for answers in self.shared.values():
            choices = [choice for other, choice in answers.items() if other != name and other not in self.aside]
            agreements += [worth(a, b) for n, a in enumerate(choices) for b in choices[n + 1 :]]
        return agreements


def _longer_chosen(answers: Sequence[GivenAnswer]) -> list[float]:
    return [
        float(one.choice == one.longer)
        for one in answers
        if one.longer is not None and one.choice != "tie" and one.expected is None
    ]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _apart(one: float, n_one: int, other: float, n_other: int, allowance: float) -> float:
    """By how many standard errors two shares differ beyond an allowance."""
    pooled = (one * n_one + other * n_other) / (n_one + n_other)
    error = math.sqrt(max(pooled * (1 - pooled), 0.05) * (1 / n_one + 1 / n_other))
    return (abs(one - other) - allowance) / error


def _as_errors(p: float) -> float:
    """A probability as the standard errors that are as unlikely."""
    return -NormalDist().inv_cdf(min(max(p, 1e-300), 1.0 - 1e-16))
