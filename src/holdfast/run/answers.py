"""How the policies of a run answer: here or by a server, with the tokens counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch

from holdfast.config import Config
from holdfast.models.codec import Codec
from holdfast.models.policy import Policy
from holdfast.models.prompt import Prompt
from holdfast.randomness import generator
from holdfast.rollout.choice import Sampling
from holdfast.rollout.sampler import Rollout, sample
from holdfast.rollout.served import ServedSampler
from holdfast.run.journal import Position
from holdfast.run.observer import Answer


@dataclass
class Answers:
    """Answers of the policy, which a server may draw, of the reference and of the last good policy."""

    policy: Policy
    codec: Codec
    sampling: Sampling
    position: Position
    served: ServedSampler | None = None

    def sample(self, policy: Policy, prompts: list[list[int]], rng: torch.Generator, counted: bool = True) -> Rollout:
        """Answers to prompts; those for observers are not counted."""
        if self.served is not None and policy is self.policy:
            rollout = self.served.sample(policy, prompts, rng)
        else:
            rollout = sample(policy, prompts, self.sampling, self.codec.eos_id, self.codec.pad_id, rng)
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
    how = asdict(config.rollout)
    del how["grammar"]  # which depends on the prompt
    return Sampling(**how)
