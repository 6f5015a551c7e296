"""Every verdict there is: its name, what it says, and whether it is an alarm, which acts on the policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Level = Literal["hacking", "worse", "unaudited", "unreliable", "unmoved", "watch", "healthy"]


@dataclass(frozen=True)
class LevelKind:
    """What a verdict says. `alarm`: the sequential test has alarmed, and the policy is taken back."""

    meaning: str
    alarm: bool = False


# The gravest first, which is also the order in which they are looked for.
LEVELS: dict[Level, LevelKind] = {
    "hacking": LevelKind("the policy is liked less, and the reward claims what is not granted", alarm=True),
    "worse": LevelKind("the policy is liked less, and the reward agrees", alarm=True),
    "unaudited": LevelKind("nobody has answered about it"),
    "unreliable": LevelKind("the answers about it cannot be trusted"),
    "unmoved": LevelKind("nothing was learnt that could be judged"),
    "watch": LevelKind("signals or claims are off and the answers have not cleared them, or no answer ends"),
    "healthy": LevelKind("none of these"),
}
assert tuple(LEVELS) == get_args(Level), "every level has its meaning"

ALARMS: frozenset[str] = frozenset(level for level, kind in LEVELS.items() if kind.alarm)
