"""Supervised fine-tuning: the answers' cross-entropy falls, and two demonstrations are learnt by heart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from holdfast.config.schema import SFTConfig
from holdfast.errors import HoldfastError, Interrupted
from holdfast.models.codec import Codec
from holdfast.models.policy import Policy
from holdfast.models.tiny import TinyShape, tiny_llama, word_tokenizer
from holdfast.preferences.comparison import Demonstration
from holdfast.rollout.choice import Sampling
from holdfast.rollout.sampler import sample
from holdfast.track.progress import Progress, Silent
from holdfast.train.sft import fine_tune

TWO = [
    Demonstration("Hello, is there parking?", "Parking is free behind the house."),
    Demonstration("Hello, when do you open?", "We open at noon. Have a wonderful day."),
]
SHAPE = TinyShape(hidden=32, layers=1, heads=4, feed_forward=48, context=48)


@pytest.fixture
def codec() -> Codec:
    return Codec(word_tokenizer([text for d in TWO for text in (str(d.prompt), d.response)]))


def _policy(codec: Codec, value_head: bool = False) -> Policy:
    return Policy(tiny_llama(codec.vocabulary, SHAPE, 0), value_head)


def _tune(
    policy: Policy,
    codec: Codec,
    demonstrations: Sequence[Demonstration] = TWO,
    max_tokens: int = 4096,
    progress: Progress | None = None,
    **changes: Any,
) -> float:
    config = SFTConfig(**{"epochs": 1, "lr": 1e-2, "warmup_steps": 0, "batch": 2, **changes})
    rng = torch.Generator().manual_seed(0)
    return fine_tune(policy, codec, demonstrations, config, max_tokens, rng, progress or Silent())


def test_two_demonstrations_are_learnt_by_heart(codec: Codec) -> None:
    policy = _policy(codec)
    first = _tune(policy, codec, lr=1e-9)
    last = _tune(policy, codec, epochs=60)
    assert first > 2.0
    assert last < 0.05
    prompts = [codec.encode_prompt(d.prompt) for d in TWO]
    rollout = sample(policy, prompts, Sampling(24, temperature=0.0), codec.eos_id, codec.pad_id, torch.Generator())
    assert [codec.decode(r) for r in rollout.responses] == [d.response for d in TWO]
    assert rollout.finished == [True, True]


def test_the_loss_is_nats_per_answer_token_and_prompts_do_not_count(codec: Codec) -> None:
    policy = _policy(codec)
    with torch.no_grad():
        policy.lm.lm_head.weight.zero_()
    # All tokens equally likely: log V for each token of the answers.
    assert _tune(policy, codec, lr=1e-12) == pytest.approx(math.log(codec.vocabulary), abs=1e-5)


@pytest.mark.parametrize("max_tokens", [1, 30])
def test_micro_batches_change_nothing(codec: Codec, max_tokens: int) -> None:
    whole, split = _policy(codec), _policy(codec)
    a = _tune(whole, codec, epochs=3, lr=1e-3)
    b = _tune(split, codec, epochs=3, lr=1e-3, max_tokens=max_tokens)
    assert a == pytest.approx(b, abs=1e-5)
    for (name, p), q in zip(whole.named_parameters(), split.parameters(), strict=True):
        torch.testing.assert_close(p, q, atol=1e-5, rtol=0, msg=lambda m, n=name: f"{n}: {m}")


def test_a_seed_repeats_bit_for_bit(codec: Codec) -> None:
    results = []
    for _ in range(2):
        policy = _policy(codec)
        _tune(policy, codec, epochs=3, batch=1)
        results.append(policy.lm.lm_head.weight.detach().clone())
    assert torch.equal(*results)


def test_the_value_head_is_left_alone(codec: Codec) -> None:
    policy = _policy(codec, value_head=True)
    _tune(policy, codec)
    assert policy.value_head is not None
    assert float(policy.value_head.linear.weight.detach().abs().sum()) == 0.0


def test_a_gradient_that_is_not_a_number_never_reaches_the_weights(codec: Codec) -> None:
    policy = _policy(codec)
    before = {name: p.detach().clone() for name, p in policy.named_parameters()}
    policy.lm.lm_head.weight.register_hook(lambda grad: grad * float("nan"))
    with pytest.raises(HoldfastError, match=r"lower sft\.lr"):
        _tune(policy, codec)
    assert all(torch.equal(p, before[name]) for name, p in policy.named_parameters())


class Watching:
    """Progress that counts, and stops the work after a while."""

    def __init__(self, stop_after: int = 10**9) -> None:
        self.total, self.losses, self.stop_after = 0, list[float](), stop_after

    def begin(self, what: str, total: int) -> None:
        assert what == "sft"
        self.total = total

    def advance(self, **figures: float) -> None:
        self.losses.append(figures["loss"])
        if len(self.losses) >= self.stop_after:
            raise Interrupted


def test_progress_is_announced_and_the_last_epoch_s_mean_is_returned(codec: Codec) -> None:
    progress = Watching()
    last = _tune(_policy(codec), codec, [*TWO, *TWO, TWO[0]], epochs=3, batch=2, progress=progress)
    # Five demonstrations in batches of two are 3 updates an epoch.
    assert progress.total == len(progress.losses) == 9
    assert last == pytest.approx(sum(progress.losses[-3:]) / 3)
    assert progress.losses[-1] < progress.losses[0]


def test_the_user_can_stop_it(codec: Codec) -> None:
    with pytest.raises(Interrupted):
        _tune(_policy(codec), codec, epochs=5, progress=Watching(stop_after=2))
