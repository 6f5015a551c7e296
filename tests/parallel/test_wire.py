"""The wire between processes: what is taken apart comes together again, and nothing else is built."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from holdfast.config.schema import SFTConfig
from holdfast.models.policy import Policy
from holdfast.parallel.processes import PROCESSES
from holdfast.parallel.wire import put_together, take_apart
from holdfast.preferences.pair import Pair
from holdfast.rollout.choice import Sampling
from holdfast.rollout.sampler import Rollout, sample
from holdfast.train.ppo import Experience, response_values, rollout_batches
from masked_language import Rules
from tiny_models import EOS, PAD, build


def through(value: Any) -> Any:
    tensors: list[torch.Tensor] = []
    return put_together(json.loads(json.dumps(take_apart(value, tensors))), tensors)


def test_dataclasses_tensors_and_plain_values_come_through() -> None:
    pairs = [Pair([1, 2], [3], [4, 5], 0.25, 2, "k", 0.5), Pair([1], [3], [], 1.0, 0)]
    config = SFTConfig(lr=0.1 + 0.2)
    assert through(pairs) == pairs
    assert through(config) == config
    assert through({"a": None, "b": [[], [1, 2]], "tensor": "no"}) == {"a": None, "b": [[], [1, 2]], "tensor": "no"}


def test_an_experience_comes_through_bit_for_bit() -> None:
    mask = torch.tensor([[True, False]])
    rollout = Rollout([[3]], [[4]], torch.randn(1, 2), None, mask, [True])
    sent = Experience(rollout, *(torch.randn(1, 2) for _ in range(4)), torch.randn(1), torch.randn(1), mask[:, 0])
    got = through(sent)
    assert isinstance(got, Experience)
    assert (got.rollout.prompts, got.rollout.values_BT, got.rollout.finished) == ([[3]], None, [True])
    assert all(
        torch.equal(a, b) for a, b in zip(list(vars(sent).values())[1:], list(vars(got).values())[1:], strict=True)
    )


def test_what_could_have_been_drawn_comes_through_without_its_grammars(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Policy(build("llama"))
    sampling = Sampling(5, top_p=0.9)
    rng = torch.Generator().manual_seed(1)
    rollout = sample(policy, [[3, 4]] * 6, sampling, EOS, PAD, rng, [Rules(), None, Rules(), Rules(), None, Rules()])
    monkeypatch.setattr(PROCESSES, "world", 2)
    got = through(rollout.crossing)
    monkeypatch.undo()
    assert got.grammars is None
    here, there = (rollout_batches(policy, one, None, PAD, 512) for one in (rollout, got))
    for truncated in (True, False):
        ours, theirs = (response_values(policy, rollout, batches, truncated=truncated) for batches in (here, there))
        assert torch.equal(ours, theirs)
    assert torch.allclose(response_values(policy, rollout, there), rollout.logprobs_BT, atol=1e-6)


def test_a_generator_goes_on_where_it_was() -> None:
    rng = torch.Generator().manual_seed(5)
    torch.rand(3, generator=rng)
    there = through(rng)
    assert torch.equal(torch.rand(4, generator=there), torch.rand(4, generator=rng))


def test_nothing_but_our_own_dataclasses_is_built() -> None:
    for module, kind in (("subprocess", "Popen"), ("holdfast.models.policy", "Policy")):
        with pytest.raises(ValueError, match="is no dataclass of holdfast's"):
            put_together({"module": module, "kind": kind, "fields": []}, [])
