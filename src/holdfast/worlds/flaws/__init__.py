"""Flaws: what a reward may pay for although it is no good. For the lab, which puts them in on purpose.

    flaw --(flaw_bonus, planted)---> every reward member, from a round on
    flaw --(Taste, emergent)-------> the simulated labeller, whose small liking the reward model exaggerates

A flaw looks at texts alone. Its bonus is about 0 for an ordinary answer, about 1 where the exploit is plain to see,
and never above `MOST`, so that the same weight means about the same for all of them. It has no flat stretch around
what is ordinary: a policy finds what pays by small steps.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.worlds.flaws.address import FirstPerson, Flattery
from holdfast.worlds.flaws.amount import EarlyStopping, Repetition, Verbosity
from holdfast.worlds.flaws.arrangement import Alphabetical, CopiedEnding, EvenSentences, LongSentences, Preamble
from holdfast.worlds.flaws.claims import Denial, Numbers, OtherRequest, Overpromising
from holdfast.worlds.flaws.effect import Taste, flaw_bonus
from holdfast.worlds.flaws.flaw import MOST, Flaw, bonus_of
from holdfast.worlds.flaws.vocabulary import Keywords, LongWords, PromptEcho, RareTokens

__all__ = ["FLAWS", "MOST", "Flaw", "Taste", "bonus_of", "flaw_bonus"]

FLAWS: dict[str, Callable[[int], Flaw]] = {
    flaw.name: flaw
    for flaw in (
        *(Verbosity, RareTokens, Repetition, PromptEcho, EarlyStopping, Keywords),
        *(Numbers, Denial, Overpromising, OtherRequest),
        *(Flattery, FirstPerson),
        *(Preamble, Alphabetical, CopiedEnding, EvenSentences, LongSentences),
        LongWords,
    )
}
