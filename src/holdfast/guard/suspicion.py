"""One p-value for a round from the p-values of all its signals, and the signals that carry it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.checkpoint.files import JSON
from holdfast.guard.baseline import Deviation
from holdfast.guard.signal import LOOKS, Signal
from holdfast.statistics import combined_p


@dataclass(frozen=True)
class Telling:
    """A signal that carries a suspicion, with its own words."""

    name: str
    family: str
    words: str
    deviation: Deviation

    def record(self) -> dict[str, JSON]:
        """As an event holds it."""
        usual, deviation = self.deviation.usual, self.deviation
        return {
            "signal": self.name,
            "words": self.words,
            "value": deviation.value,
            "usual": usual.value,
            "z": deviation.z,
            "p": deviation.p,
        }


# Combined p-value of the signals below which a round is suspicious and buys more audit labels.
LEVEL = 0.01


@dataclass(frozen=True)
class Suspicion:
    """A round's combined p-value, and if it is below `level`, the signals without which it would not be."""

    p: float
    level: float
    telling: tuple[Telling, ...] = ()
    p_values: tuple[tuple[str, float], ...] = ()

    @property
    def suspicious(self) -> bool:
        return self.p < self.level

    def words(self, most: int = 2) -> list[str]:
        """What the most telling signals say: how answers look first, and one of each family, which tells one story."""
        first_of: dict[str, str] = {}
        for telling in sorted(self.telling, key=lambda t: t.family not in LOOKS):
            first_of.setdefault(telling.family, telling.words)
        return list(first_of.values())[:most]


def suspicion_of(signals: Mapping[str, Signal], deviations: Mapping[str, Deviation], level: float = LEVEL) -> Suspicion:
    """Combine a round's deviations. With no signal to speak of p is 1."""
    ordered = sorted(deviations.items(), key=lambda item: (item[1].p, item[0]))
    p_values = [deviation.p for _, deviation in ordered]
    p = combined_p(p_values)
    telling: list[Telling] = []
    if p < level:
        # A signal that is left out counts as one that has nothing to say.
        counts = range(1, len(p_values) + 1)
        count = next((n for n in counts if combined_p([0.5] * n + p_values[n:]) >= level), len(p_values))
        for name, deviation in ordered[:count]:
            signal = signals[name]
            words = signal.words(deviation.value, deviation.usual)
            telling.append(Telling(name, signal.family, words, deviation))
    return Suspicion(p, level, tuple(telling), tuple((name, deviation.p) for name, deviation in ordered))
