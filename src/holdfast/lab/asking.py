"""What people would say if they could be asked about everything: the most that any audit can find out.

An audit asks about a few dozen pairs. Here the labeller of a run answers thousands, about the held-out answers of every
round beside those of the best round before it. Where people, asked like this, hardly mind the fall of gold, no guard
that asks people can see it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from holdfast.loop import Answer
from holdfast.preferences.types import Choice, Comparison, Labeller, Prompt, Provenance, Response

# Standard errors that make a preference plain: about what an alarm takes that may not be false in 5% of whole runs.
PLAIN = 3.0


def liked(
    labeller: Labeller, prompts: Sequence[Prompt], said: Mapping[int, Sequence[Answer]], gold: Sequence[float]
) -> list[float | None]:
    """For every round, in what share of pairs people prefer its policy to that of the best round before, by gold.

    `prompts` are those that every round answered, several times over; each answer meets each one to its prompt. None
    for the first round.
    """
    rounds = range(len(gold))
    best = [max(range(round), key=gold.__getitem__) if round else 0 for round in rounds]
    return [None if round == 0 else _share(labeller, prompts, said, round, best[round]) for round in rounds]


def _share(
    labeller: Labeller, prompts: Sequence[Prompt], said: Mapping[int, Sequence[Answer]], round: int, best: int
) -> float:
    places: dict[Prompt, list[int]] = {}
    for place, prompt in enumerate(prompts):
        places.setdefault(prompt, []).append(place)
    asked = [
        Comparison(f"all/r{round}-{n}-{m}", prompt, _response(said[round][n]), _response(said[best][m]), round)
        for prompt, same in places.items()
        for n in same
        for m in same
    ]
    wins = {Choice.A: 1.0, Choice.B: 0.0}
    return sum(wins.get(label.choice, 0.5) for label in labeller.label(asked)) / len(asked)


def _response(answer: Answer) -> Response:
    return Response(answer.text, Provenance("held-out", 0, 0), finished=answer.finished)


def pairs_needed(share: float) -> float:
    """How many pairs it takes to see plainly that people prefer the other policy; no number is enough from 1/2 on."""
    return math.inf if share >= 0.5 else (PLAIN / (2 * (0.5 - share))) ** 2
