"""No token is computed that nobody needs: a guard against becoming slow that does not look at the clock.

A PPO step on a fixed small case, with every operation counted. If a change makes one of the bounds fail, it made the
step dearer: find out why before writing another number here.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from holdfast.config.schema import KLConfig, PPOConfig, RewardConfig
from holdfast.models.fast.decoding import Decoder
from holdfast.models.fast.packing import Packed
from holdfast.models.fast.trunk import FastTrunk
from holdfast.models.policy import Policy
from holdfast.models.reward_model import RewardModel, trunk_of
from holdfast.models.tiny import TinyShape, tiny_llama
from holdfast.parallel import cores
from holdfast.parallel.cores import CORES
from holdfast.reward.ensemble import Ensemble
from holdfast.reward.source import RewardSource
from holdfast.rollout.choice import Sampling
from holdfast.rollout.sampler import Rollout, sample
from holdfast.train.ppo import PPO, experience_of, response_values
from tiny_models import EOS, PAD, sequences
from work_counter import WorkCounter

VOCABULARY, HIDDEN, LAYERS, FEED_FORWARD, MEMBERS, EPOCHS = 120, 32, 3, 64, 3, 2
ROWS, NEW_TOKENS = 24, 40


@dataclass
class Tokens:
    """Tokens that went through a trunk, pass by pass."""

    prompts: int = 0
    decoded: int = 0
    packed: list[tuple[int, int]] | None = None


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tokens]:
    seen = Tokens(packed=[])
    prefill, step, hidden = Decoder.prefill, Decoder.step, FastTrunk.hidden

    def count_prefill(self: Decoder) -> torch.Tensor:
        seen.prompts += self.packed.tokens
        return prefill(self)

    def count_step(self: Decoder, tokens_A: torch.Tensor) -> torch.Tensor:
        seen.decoded += len(tokens_A)
        return step(self, tokens_A)

    def count_hidden(self: FastTrunk, packed: Packed) -> torch.Tensor:
        assert seen.packed is not None
        seen.packed.append((packed.tokens, sum(packed.counts)))
        return hidden(self, packed)

    monkeypatch.setattr(Decoder, "prefill", count_prefill)
    monkeypatch.setattr(Decoder, "step", count_step)
    monkeypatch.setattr(FastTrunk, "hidden", count_hidden)
    CORES.set_workers(1)
    yield seen
    CORES.set_workers(1)


def _no_answers(_prompts: list[list[int]], _rng: torch.Generator) -> Rollout:
    raise AssertionError("nothing is shaped here")


class Step:
    """What a PPO step works with."""

    def __init__(self) -> None:
        lm: Any = tiny_llama(VOCABULARY, TinyShape(HIDDEN, LAYERS, 4, FEED_FORWARD, 80), seed=3)
        self.reference, self.policy = Policy(lm), Policy(copy.deepcopy(lm), value_head=True)
        ensemble = Ensemble([RewardModel(trunk_of(lm), k) for k in range(MEMBERS)], PAD, 10**6)
        ensemble.means, ensemble.sds = (0.0,) * MEMBERS, (1.0,) * MEMBERS
        self.rewarding = RewardSource(ensemble, RewardConfig(), _no_answers)
        self.ppo = PPO(self.policy, None, PPOConfig(epochs=EPOCHS, minibatches=1), KLConfig(), 1.0, 10**6, PAD)
        self.prompts = sequences(ROWS, 3, 14, seed=8)
        self.rng = torch.Generator().manual_seed(0)

    def sample(self) -> Rollout:
        return sample(self.policy, self.prompts, Sampling(max_new_tokens=NEW_TOKENS), EOS, PAD, self.rng)

    def learn(self, rollout: Rollout) -> None:
        batches = self.ppo.batches(rollout)
        reference_BT = response_values(self.reference, rollout, batches)
        values_BT = self.ppo.values(rollout, batches)
        scores_B = self.rewarding.reward(rollout, self.rng).rewards_B
        experience = experience_of(rollout, reference_BT, values_BT, scores_B, 0.05, self.ppo.ppo, self.ppo.kl)
        self.ppo.learn(experience, batches, 0.05, 1e-4, self.rng)


def test_only_the_tokens_that_are_needed_go_through_a_trunk(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.train.ppo.STEP_ANSWERS", 0)  # all
    work = Step()
    assert tokens.packed is not None
    tokens.packed.clear()  # what checked the fast path against the plain one
    rollout = work.sample()
    prompts, responses = sum(map(len, rollout.prompts)), sum(rollout.lengths)
    assert len(set(rollout.lengths)) > 4, "answers of many lengths, or nothing is shown here"
    assert tokens.prompts == prompts
    # Nothing follows an answer's last token, so it is never read.
    assert tokens.decoded == responses - ROWS
    assert tokens.packed == [], "log-probs and values come from sampling, not from another pass"
    work.learn(rollout)
    predict, score = (prompts + responses - ROWS, responses), (prompts + responses, ROWS)
    # Reference, members, the epochs of the update, and how far it moved.
    assert tokens.packed == [predict, *[score] * MEMBERS, *[predict] * EPOCHS, predict]
    tokens.packed.clear()
    monkeypatch.setattr("holdfast.train.ppo.STEP_ANSWERS", ROWS // 4)
    work.ppo.moved(rollout)
    (some,) = tokens.packed
    assert some[1] == sum(rollout.lengths[::4])


def _linear(tokens: int, read_out: int, passes: int) -> int:
    """Operations of the matrices alone: all but the last layer for all tokens, of that keys and values."""
    layer = 2 * (4 * HIDDEN * HIDDEN + 3 * HIDDEN * FEED_FORWARD)
    keys_values = 2 * 2 * HIDDEN * HIDDEN
    return passes * (tokens * ((LAYERS - 1) * layer + keys_values) + read_out * (layer - keys_values))


def _attention(lengths: list[int], read_out: list[int], passes: int) -> int:
    """Scores and answers of whole squares; padding to rows of like length is on top of that."""
    inner = sum(n * n for n in lengths) * (LAYERS - 1)
    last = sum(n * m for n, m in zip(lengths, read_out, strict=True))
    return passes * 2 * 2 * HIDDEN * (inner + last)


def test_operations_of_a_step(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrix products: what the tokens need, exactly, and a little padding in attention on top."""
    monkeypatch.setattr(cores._inside, "worker", True, raising=False)  # only this thread's work is counted
    work = Step()
    rollout = work.sample()
    work.learn(rollout)  # the optimiser has its state now
    prompts, responses = sum(map(len, rollout.prompts)), sum(rollout.lengths)
    with WorkCounter() as counted:
        work.learn(rollout)
    predict, score = prompts + responses - ROWS, prompts + responses
    # Reference and `moved` forwards, members forwards to one position, epochs forwards and backwards.
    needed = _linear(predict, responses, 2 + 3 * EPOCHS) + _linear(score, ROWS, MEMBERS)
    needed += (2 + 3 * EPOCHS) * 2 * HIDDEN * VOCABULARY * responses
    rows = [len(p) + len(r) for p, r in zip(rollout.prompts, rollout.responses, strict=True)]
    needed += _attention([n - 1 for n in rows], rollout.lengths, 2 + 3 * EPOCHS) + _attention(rows, [1] * ROWS, MEMBERS)
    assert counted.flops > needed
    assert counted.flops < 1.13 * needed, counted.flops / needed
    assert counted.kernels < 2_600, counted.kernels
    assert counted.bytes < 120e6, counted.bytes


def test_operations_of_sampling(tokens: Tokens) -> None:
    work = Step()
    with WorkCounter() as counted:
        rollout = work.sample()
    prompts, responses = sum(map(len, rollout.prompts)), sum(rollout.lengths)
    needed = _linear(prompts + responses - ROWS, prompts + responses - ROWS, 1) + 2 * HIDDEN * VOCABULARY * responses
    assert counted.flops > needed
    assert counted.flops < 1.25 * needed, counted.flops / needed
    steps = max(rollout.lengths)
    assert counted.kernels / steps < 115, counted.kernels / steps
    assert counted.bytes < 12e6, counted.bytes
