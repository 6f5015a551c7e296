"""What people would say if they could be asked about every pair as it comes.

An audit asks about a few dozen pairs. Here the labeller of a run answers thousands, about the held-out answers of every
round beside those of the best round before it. Where people, asked like this, hardly mind the fall of gold, it takes
more pairs to see it than a run may ask about, unless some pairs show it more plainly than others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from holdfast.models.prompt import Prompt
from holdfast.preferences.comparison import Choice, Comparison, Provenance, Response
from holdfast.preferences.labeller import Labeller
from holdfast.run.observer import Answer

# Standard errors that make a preference plain. An alarm that may be false in 5% of whole runs takes about as many.
BEYOND_DOUBT = 3.0


def liked(
    labeller: Labeller, prompts: Sequence[Prompt], said: Mapping[int, Sequence[Answer]], gold: Sequence[float]
) -> list[float | None]:
    """For every round, in what share of pairs people prefer its policy to that of the best round before, by gold.

    `prompts` are those that every round answered, several times over; each answer meets each one to its prompt. None
    for the first round. Nothing at all where the answers of a round are missing.
    """
    rounds = range(len(gold))
    if any(round not in said for round in rounds):
        return []
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
    # Every other one with its sides exchanged, so that whoever always takes the left one is of no opinion.
    swapped = {comparison.id for comparison in asked[1::2]}
    labels = labeller.label([c.swap() if c.id in swapped else c for c in asked])
    wins = {Choice.A: 1.0, Choice.B: 0.0}
    won = [wins.get(x.choice.swap() if x.comparison_id in swapped else x.choice, 0.5) for x in labels]
    return sum(won) / len(won)


def _response(answer: Answer) -> Response:
    return Response(answer.text, Provenance("held-out", 0, 0), finished=answer.finished)


def pairs_needed(share: float) -> float:
    """How many pairs it takes to see plainly that people prefer the other policy; no number is enough from 1/2 on."""
    return math.inf if share >= 0.5 else (BEYOND_DOUBT / (2 * (0.5 - share))) ** 2
