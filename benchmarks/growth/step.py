"""One step of PPO against its batch, the length of its answers, the size of the model and of the ensemble.

Random weights, prompts of one length and answers that never end before their limit, so that every step has the same
work to do; one thread, so that processor time is the time it takes. Each function changes one thing about `STEP`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from benchmarks.growth.process import Preparation, Work
from benchmarks.speed.ours import assembled
from holdfast.config import Config
from holdfast.models.codec import Codec
from holdfast.models.tiny import SPECIALS, TinyShape, tiny_llama, word_tokenizer
from holdfast.reward.standalone import build_ensemble
from holdfast.run.inputs import set_up_torch

VOCABULARY = 1024
LAYERS = 4
PROMPT = 16


@dataclass(frozen=True)
class Step:
    """What one step works on."""

    batch: int = 64
    length: int = 48
    parameters: int = 1_000_000
    members: int = 3


STEP = Step()


def shape_of(parameters: int, context: int) -> TinyShape:
    """The Llama of about so many parameters: 12 w^2 in a layer of width w, and two embeddings."""
    # 12 LAYERS w^2 + 2 VOCABULARY w = parameters
    a, b = 12 * LAYERS, 2 * VOCABULARY
    width = (math.sqrt(b * b + 4 * a * parameters) - b) / (2 * a)
    heads = max(1, round(width / 32))
    width = 2 * heads * max(1, round(width / (2 * heads)))
    return TinyShape(width, LAYERS, heads, round(8 * width / 3), context)


def config_of(step: Step) -> Config:
    base = Config()
    return replace(
        base,
        run=replace(base.run, threads=1),
        rollout=replace(base.rollout, max_new_tokens=step.length),
        reward=replace(base.reward, members=step.members),
        # Small enough that the policy stays what it is while it is being timed.
        ppo=replace(base.ppo, batch=step.batch, lr=1e-6),
    )


@contextmanager
def prepared(step: Step) -> Preparation:
    config = config_of(step)
    set_up_torch(config)
    codec = Codec(word_tokenizer(["hello"]))
    lm = tiny_llama(VOCABULARY, shape_of(step.parameters, PROMPT + step.length), 0)
    ensemble = build_ensemble(config, lm, codec)
    ensemble.means, ensemble.sds = (0.0,) * step.members, (1.0,) * step.members
    rng = torch.Generator().manual_seed(0)
    prompts = torch.randint(len(SPECIALS), VOCABULARY, (step.batch, PROMPT), generator=rng).tolist()
    ours = assembled(lm, codec, ensemble, config, prompts, ends=False)
    ours.step()  # The first one makes the optimiser's state and the caches.
    yield ours.step


def by(name: str) -> Callable[[Path, int], AbstractContextManager[Work]]:
    """A measurement that changes one thing about the step."""
    return lambda directory, n: prepared(replace(STEP, **{name: n}))


by_batch, by_length, by_parameters, by_members = map(by, ("batch", "length", "parameters", "members"))
