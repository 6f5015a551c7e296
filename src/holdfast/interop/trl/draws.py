"""Answers as the guard's review asks for them: by prompts in the reading's tokens, from whoever has to answer.

Where there is no memory for a second copy of the weights, the beginning's answers to the audit prompts are drawn once,
kept, and drawn from.

Shapes: B answers, F reward functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holdfast.checkpoint.files import read_json, write_json_atomic
from holdfast.interop.trl.answers import Drawn, Player, decode, per_token
from holdfast.interop.trl.hands import Hands
from holdfast.interop.trl.readings import RewardReading
from holdfast.rollout.sampler import Rollout

# Prompts whose answers by the beginning are kept, and answers to each.
KEPT_PROMPTS, KEPT_ANSWERS = 256, 4


@dataclass
class TrainerAnswers:
    """Draws answers to prompts, which are known by their tokens in the reading's codec; `places` says where they are.

    `beginning` holds the kept answers of the beginning, by place; it is empty where the beginning itself can answer.
    """

    hands: Hands
    reading: RewardReading
    places: Mapping[tuple[int, ...], int]
    beginning: dict[int, list[Drawn]] = field(default_factory=dict)

    def sample(self, player: Player, prompts: list[list[int]], rng: torch.Generator) -> Rollout:
        """One answer to each prompt; log-probs stand for the entropy of the distribution a token was drawn from.

        The mean of -log pi over sampled tokens is that entropy's, so the guard's signals may read either.
        """
        places = [self.places[tuple(ids)] for ids in prompts]
        seed = int(torch.randint(2**62, (1,), generator=rng))
        if player.there:
            drawn = self.hands.do("answer", who=player.who, places=places, seed=seed)
        else:
            turns = torch.randint(KEPT_ANSWERS, (len(places),), generator=rng).tolist()
            drawn = [self.beginning[place][turn] for place, turn in zip(places, turns, strict=True)]
        asked = [self.hands.rows[place]["prompt"] for place in places]
        ids = [one.ids for one in drawn]
        texts = [decode(self.hands.trainer, each) for each in ids]
        rollout = self.reading.read(asked, texts, ids)
        entropies_B = torch.tensor([one.entropy for one in drawn])
        return Rollout(
            [list(each) for each in prompts], rollout.responses, -per_token(rollout, entropies_B), None,
            rollout.mask_BT, rollout.finished, texts=texts,
        )  # fmt: skip

    def values(self, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]) -> Tensor:
        """values_BF of answers that were drawn here."""
        places = [self.places[tuple(ids)] for ids in prompts]
        values_BF: Tensor = self.hands.do("score", places=places, answers=[list(ids) for ids in answers])
        return values_BF

    def keep_answers(self, seed: int, file: Path) -> None:
        """Draw the present policy's answers to all prompts, for later."""
        places = [place for place in self.places.values() for _ in range(KEPT_ANSWERS)]
        for place, one in zip(places, self.hands.do("answer", who="policy", places=places, seed=seed), strict=True):
            self.beginning.setdefault(place, []).append(one)
        write_json_atomic(
            file, {str(p): [[one.ids, one.entropy] for one in kept] for p, kept in self.beginning.items()}
        )

    def load_answers(self, file: Path) -> None:
        """Those that an earlier sitting has kept."""
        document: Any = read_json(file)
        self.beginning = {int(place): [Drawn(*one) for one in kept] for place, kept in document.items()}
