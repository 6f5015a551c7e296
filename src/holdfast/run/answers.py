"""How the policies of a run answer: here or by a server, with the tokens counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from holdfast.config import Config
from holdfast.grammar.grammars import Grammars, each_grammar
from holdfast.models.codec import Codec
from holdfast.models.policy import Policy
from holdfast.models.prompt import Prompt
from holdfast.randomness import generator
from holdfast.rollout.choice import Sampling
from holdfast.rollout.likelihood import over_everything
from holdfast.rollout.sampler import Rollout, sample
from holdfast.rollout.served import ServedSampler
from holdfast.run.inputs import Ingredients
from holdfast.run.journal import Position
from holdfast.run.observer import Answer


@dataclass
class Answers:
    """Answers of the policy, which a server may draw, of the reference and of the last good policy.

    `whole_within` has log-probs taken over the whole vocabulary in passes of so many tokens, whatever grammars allow.
    """

    policy: Policy
    codec: Codec
    sampling: Sampling
    position: Position
    served: ServedSampler | None = None
    grammars: Grammars | None = None
    whole_within: int = 0

    def sample(self, policy: Policy, prompts: list[list[int]], rng: torch.Generator, counted: bool = True) -> Rollout:
        """Answers to prompts; those for observers are not counted."""
        if self.served is not None and policy is self.policy:
            rollout = self.served.sample(policy, prompts, rng)
        else:
            grammars = each_grammar(self.grammars, prompts)
            rollout = sample(policy, prompts, self.sampling, self.codec.eos_id, self.codec.pad_id, rng, grammars)
        if self.whole_within and rollout.support is not None:
            limits = self.codec.pad_id, self.whole_within, self.sampling.temperature
            rollout = over_everything(policy, rollout, *limits)
        self.position.tokens += sum(rollout.lengths) if counted else 0
        return rollout

    def answer(self, prompts: Sequence[Prompt], seed: int) -> list[Answer]:
        """The current policy's answers, drawn with a seed of the caller's; the run's own draws are not touched."""
        ids = [self.codec.encode_prompt(p) for p in prompts]
        return self.texts(self.sample(self.policy, ids, generator(seed, "answers"), counted=False))

    def texts(self, rollout: Rollout) -> list[Answer]:
        return [Answer(self.codec.decode(r), done) for r, done in zip(rollout.responses, rollout.finished, strict=True)]


def sampling_of(config: Config) -> Sampling:
    """How a run's settings have answers drawn."""
    return Sampling(**{name: getattr(config.rollout, name) for name in Sampling.__dataclass_fields__})


def run_answers(
    ingredients: Ingredients, policy: Policy, position: Position, served: ServedSampler | None = None
) -> Answers:
    """Answers as a run's settings want them, with nothing drawn yet."""
    config = ingredients.config
    whole_within = 0 if config.rollout.renormalise else config.policy.micro_batch_tokens
    given = ingredients.codec, sampling_of(config), position, served, ingredients.grammars
    return Answers(policy, *given, whole_within)
