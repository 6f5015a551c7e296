"""Which component of a reward gained, and whether people grant it.

Of the policy's answer beside another's to the same prompt each component says how much more the policy got. It is
*newly credited* in a pair where the policy's answer got more of it. Where people prefer the policy in fewer than half
of those pairs by more than chance explains, people do not grant the gain. Of several such components the one is being
hacked that pays the policy most:

    paid = k * gain,  k by least squares:  margin ~ sum over components of k * difference

since nobody but the reward knows how it makes one number of its components. For a weighted sum k is the weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

import numpy as np

from holdfast.checkpoint.files import JSON
from holdfast.guard.audit import AuditPair
from holdfast.guard.signal import three_digits
from holdfast.statistics import wilson

# Of fewer newly credited pairs nobody can say whether people grant them.
FEWEST_CREDITED = 8


@dataclass(frozen=True)
class Credited:
    """A component with its mean gain over the other policy, and of the pairs that it newly credits those granted.

    `paid` is what the gain comes to in reward. Where the reward has no components, it is one of an empty name itself.
    """

    name: str
    gained: float
    pairs: int
    granted: float
    paid: float

    @property
    def rejected(self) -> bool:
        """Whether people do not grant what it gained."""
        return self.gained > 0 and self.pairs >= FEWEST_CREDITED and wilson(self.granted, self.pairs).high < 0.5

    def words(self, part: str = "component", reward: str = "the reward") -> str:
        """Such as: the criterion 'cites a source' gained 0.4 and is granted in 12 of 50."""
        who = f"the {part} {self.name!r}" if self.name else reward
        return f"{who} gained {three_digits(self.gained)} and is granted in {self.granted:g} of {self.pairs}"

    def record(self) -> dict[str, JSON]:
        """As an event holds it."""
        return {**asdict(self), "rejected": self.rejected}


def attribution(pairs: Sequence[AuditPair]) -> tuple[Credited, ...]:
    """Every component of a reward that is numbers, what people grant least first; nothing for an ensemble.

    Pairs are those with the last good policy, and before any round was good with the reference. Gains are of pairs as
    they come; what is granted is also told by pointed ones.
    """
    against = "anchor" if any(pair.against == "anchor" for pair in pairs) else "reference"
    told = [
        pair for pair in pairs if pair.margin is not None and pair.against in (against, "pointed") and not pair.alike
    ]
    plain = [pair for pair in told if pair.against == against] or told
    names = dict.fromkeys(name for pair in told for name in pair.parts) or {"": None}

    def of(pair: AuditPair, name: str) -> float:
        return pair.parts.get(name, 0.0) if name else pair.margin or 0.0

    found = []
    for name, rate in zip(names, pay(told, [[of(pair, name) for name in names] for pair in told]), strict=False):
        credited = [pair for pair in told if of(pair, name) > 0]
        granted, gained = sum(pair.policy_won for pair in credited), fmean(of(pair, name) for pair in plain)
        found.append(Credited(name, gained, len(credited), granted, rate * gained))
    return tuple(sorted(found, key=lambda each: (each.granted / each.pairs if each.pairs else 1.0, each.name)))


def pay(pairs: Sequence[AuditPair], differences: Sequence[Sequence[float]]) -> list[float]:
    """What a unit of each component pays in reward; components that always go together share it."""
    if not pairs:
        return []
    # To six digits: scores in single precision must not make two equal components out to differ.
    margins = [pair.margin or 0.0 for pair in pairs]
    return [float(k) for k in np.linalg.lstsq(np.array(differences), np.array(margins), rcond=1e-6)[0]]


def hollow_words(blamed: Credited, parts: Sequence[Credited]) -> str:
    """Where validity is to blame and answers say less of what their schema names: that they are valid, and empty."""
    fallen = [each.gained for each in parts if _own_name(each) == "coverage" and each.gained < 0]
    if _own_name(blamed) != "valid" or not fallen:
        return ""
    return f"answers are valid, and empty: they cover {three_digits(-min(fallen))} less of what the schema names"


def _own_name(part: Credited) -> str:
    """A component's name without that of the part that it belongs to."""
    return part.name.rpartition("/")[2]


def culprit(parts: Sequence[Credited]) -> Credited | None:
    """Of the components that people do not grant, the one whose gain pays most; none where there is no such one."""
    return max((each for each in parts if each.rejected), key=lambda each: each.paid, default=None)
