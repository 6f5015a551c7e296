"""Answers for audits: the policy's, the reference's and the last good policy's, whoever gives them.

    an endpoint of its own     asked by the server
    evaluated                  what the trainer has posted of its newest evaluation
    kept                       what the policy said to all prompts when it was the reference, or became the anchor
    asked                      the client is asked, and waited for

Shapes: B answers, T words, P pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from holdfast.errors import HoldfastError
from holdfast.guard.claimant import PairScores
from holdfast.models.codec import Codec
from holdfast.models.prompt import Prompt
from holdfast.preferences.encoding import prompt_json
from holdfast.preferences.pair import Pair
from holdfast.rollout.sampler import Rollout
from holdfast.serving.guard.desk import GuardDesk
from holdfast.serving.guard.policy_server import PolicyServer
from holdfast.serving.guard.posts import PostedAnswer, answers_of, columns_of, stored_answers
from holdfast.serving.guard.settings import TrainingSettings
from holdfast.serving.protocols import prompt_of

Who = Literal["policy", "reference", "anchor"]
Texts = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass
class AuditAnswers:
    """Draws answers, and remembers what the reward gave to each. `round` and `calls` name what is asked.

    `kept` has the need that holds a player's answers to all prompts. `place` says which checkpoint the anchor is.
    `evaluation` waits for the policy's answers to all prompts, where the trainer evaluates.
    """

    desk: GuardDesk
    codec: Codec
    settings: TrainingSettings
    servers: Mapping[str, PolicyServer]
    evaluation: Callable[[], Mapping[Prompt, PostedAnswer]]
    round: int = 0
    calls: int = 0
    kept: dict[str, str] = field(default_factory=dict)
    place: Mapping[str, Any] = field(default_factory=dict)
    _rewards: dict[Texts, PostedAnswer] = field(default_factory=dict)
    _at_hand: dict[str, dict[Prompt, PostedAnswer]] = field(default_factory=dict)
    _evaluated: Mapping[Prompt, PostedAnswer] | None = None

    def __post_init__(self) -> None:
        self._prompts = {tuple(self.codec.encode_prompt(prompt)): prompt for prompt in self.settings.prompts}

    def begin_round(self, round: int) -> None:
        """Ids of a round's needs follow from the round, so that one that is done again finds what was answered."""
        self.round, self.calls, self._evaluated = round, 0, None
        self._rewards.clear()

    def sample(self, player: Who, prompts: list[list[int]], rng: torch.Generator) -> Rollout:
        """One answer to each prompt, by their tokens. `rng` has no part in it: chance is the trainer's."""
        return self.rollout(self._answers(player, [self._prompts[tuple(ids)] for ids in prompts]))

    def keeps(self, player: Who) -> bool:
        """Whether a player's answers are kept."""
        source = {"reference": self.settings.reference, "anchor": self.settings.anchor, "policy": "asked"}[player]
        return source == "kept" and player not in self.servers

    def keep(self, player: Who) -> None:
        """Keep what the present policy says to all prompts as this player's answers."""
        self.kept[player] = name = f"r{self.round:04d}-kept-{player}"
        self._at_hand[player] = {each.prompt: each for each in self._asked("policy", self.settings.prompts, name)}

    def _answers(self, player: Who, prompts: Sequence[Prompt]) -> list[PostedAnswer]:
        if self.keeps(player):
            known = self._kept(player)
            return [known[prompt] for prompt in prompts]
        self.calls += 1
        return self._asked(player, prompts, f"r{self.round:04d}-{self.calls:02d}-{player}")

    def _kept(self, player: Who) -> dict[Prompt, PostedAnswer]:
        if player not in self._at_hand:
            stored = self.desk.records.need(self.kept[player])
            if stored is None or stored[1] is None:
                raise HoldfastError("The kept answers of this training are gone from its database; bring it back.")
            self._at_hand[player] = {each.prompt: each for each in stored_answers(stored[1])}
        return self._at_hand[player]

    def _asked(self, player: Who, prompts: Sequence[Prompt], name: str) -> list[PostedAnswer]:
        """By the player's endpoint where there is one, else by the client."""
        question: dict[str, Any] = {
            "what": "answers", "of": player, "prompts": [prompt_json(prompt) for prompt in prompts],
            "max_tokens": self.settings.max_tokens, "temperature": self.settings.temperature,
            **({"checkpoint": dict(self.place)} if player == "anchor" else {}),
        }  # fmt: skip
        evaluated = player == "policy" and self.settings.policy == "evaluated"
        if player not in self.servers and not evaluated:
            return stored_answers(self.desk.ask(name, question))
        known = self.desk.known(name, question)
        if player not in self.servers:
            if known is None:
                self._evaluated = self._evaluated or self.evaluation()
                known = columns_of([self._evaluated[prompt] for prompt in prompts])
                self.desk.note(name, question, known)
            return stored_answers(known)
        if known is None:
            limits = self.settings.max_tokens, self.settings.temperature
            known = columns_of(self.servers[player].answer(prompts, *limits))
            self.desk.note(name, question, known)
        answers = stored_answers(known)
        return self._scored(answers, f"{name}-rewards") if self.settings.score == "client" else answers

    def _scored(self, answers: list[PostedAnswer], name: str) -> list[PostedAnswer]:
        """Answers that the server has fetched, with what the client's reward gives them."""
        columns = columns_of(answers)
        question = {"what": "rewards", **{key: columns[key] for key in ("prompts", "answers", "finished")}}
        return stored_answers(self.desk.ask(name, question))

    def rollout(self, answers: Sequence[PostedAnswer]) -> Rollout:
        """Answers in words, without log-probs."""
        prompts = [self.codec.encode_prompt(each.prompt) for each in answers]
        responses = [self.codec.encode_response(each.text) for each in answers]
        responses = [ids if each.finished else ids[:-1] for ids, each in zip(responses, answers, strict=True)]
        for prompt, response, each in zip(prompts, responses, answers, strict=True):
            self._rewards[tuple(prompt), tuple(response)] = each
        width = max(map(len, responses), default=0)
        mask_BT = torch.arange(width)[None] < torch.tensor([len(ids) for ids in responses])[:, None]
        nothing_BT = torch.full(mask_BT.shape, math.nan)
        texts, finished = [each.text for each in answers], [each.finished for each in answers]
        return Rollout(prompts, responses, nothing_BT, None, mask_BT, finished, texts=texts)

    def scores(self, pairs: Sequence[Pair]) -> PairScores:
        """How much more the reward gave the first sides of an audit's pairs, in all and by component."""
        sides = [[self._rewards[tuple(pair.prompt), tuple(ids)] for ids in (pair.a, pair.b)] for pair in pairs]
        names = dict.fromkeys(name for pair in sides for each in pair for name in each.components)
        parts = {name: _margins([[each.components.get(name) for each in pair] for pair in sides]) for name in names}
        return PairScores(_margins([[each.reward for each in pair] for pair in sides]), parts)


def _margins(sides: Sequence[Sequence[float | None]]) -> torch.Tensor:
    """margin_P: NaN where a side has no number."""
    known = [[math.nan if value is None else value for value in pair] for pair in sides]
    return torch.tensor([first - second for first, second in known])


def answered(question: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """What a client posts to a need, checked against what was asked, as it is stored."""
    asked = {key: question[key] for key in ("answers", "finished") if key in question}
    prompts = [prompt_of(each, "prompt") for each in question["prompts"]]
    return columns_of(answers_of({**document, **asked}, prompts))
