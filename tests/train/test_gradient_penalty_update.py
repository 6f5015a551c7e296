"""The penalty on the policy's gradient in an update, against a loss that is differentiated twice."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from holdfast.config.schema import KLConfig, PPOConfig
from holdfast.models.policy import Policy
from holdfast.models.reward_model import CriticModel, trunk_of
from holdfast.rollout.choice import Sampling
from holdfast.rollout.sampler import sample
from holdfast.train import ppo as module
from holdfast.train.ppo import PPO, Experience, experience_of
from tiny_models import EOS, PAD, build, sequences

PENALTY = 0.5


def setup(critic: bool = False, **changes: Any) -> tuple[PPO, Experience]:
    """A policy on transformers' own path, which can be differentiated twice, after one step that moved it."""
    lm = build("llama", num_hidden_layers=1)
    policy = Policy(lm, value_head=not critic, fast=False)
    own = CriticModel(trunk_of(lm), fast=False) if critic else None
    pinned = {
        "batch": 8, "samples_per_prompt": 1, "advantage": "gae", "epochs": 1, "minibatches": 1, "lr": 1e-2,
        "clip": 0.2, "epoch_kl_stop": 0.0, "critic_lr_factor": 1.0, "gradient_penalty": PENALTY,
    }  # fmt: skip
    ppo = PPO(policy, own, PPOConfig(**{**pinned, **changes}), KLConfig(placement="reward"), 1.0, 4096, PAD)
    rollout = sample(policy, sequences(8, 2, 4, seed=21), Sampling(max_new_tokens=6), EOS, PAD, rng())
    values_BT = ppo.values(rollout, ppo.batches(rollout))
    scores_B = torch.tensor([float(sum(r)) for r in rollout.responses])
    return ppo, experience_of(rollout, rollout.logprobs_BT, values_BT, scores_B, 0.1, ppo.ppo, ppo.kl)


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(7)


def exactly(ppo: PPO, experience: Experience) -> list[Tensor]:
    """The gradient of loss + penalty / 2 * |gradient|^2, over the policy's own weights."""
    (batch,) = ppo.batches(experience.rollout)
    with sdpa_kernel(SDPBackend.MATH):
        losses, _ = ppo._losses(experience, batch, 0.1, [len(r) for r in batch.responses])
        loss = torch.stack(losses).sum()
        first = torch.autograd.grad(loss, ppo.acting, create_graph=True)
        norm = torch.stack([g.square().sum() for g in first]).sum()
        return list(torch.autograd.grad(loss + PENALTY / 2 * norm, ppo.acting))


@pytest.mark.parametrize("critic", [False, True])
def test_the_gradient_is_that_of_the_penalised_loss(critic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AHEAD", 1e-3)
    ppo, experience = setup(critic)
    expected = exactly(ppo, experience)
    weights = [p.detach().clone() for p in ppo.parameters]
    batches = ppo.batches(experience.rollout)
    ppo._accumulate(experience, batches, 0.1)
    plain = {id(p): p.grad.clone() for p in ppo.parameters if p.grad is not None}
    ppo._penalise(lambda: ppo._accumulate(experience, batches, 0.1))
    for found, wanted in zip(ppo.acting, expected, strict=True):
        assert found.grad is not None
        assert float((found.grad - wanted).norm()) < 0.02 * float((wanted - plain[id(found)]).norm()) + 1e-6
    assert all(torch.equal(p, before) for p, before in zip(ppo.parameters, weights, strict=True))
    judging = [p for p in ppo.parameters if all(p is not other for other in ppo.acting)]
    assert judging
    assert all(torch.equal(p.grad, plain[id(p)]) for p in judging if p.grad is not None)


def test_an_update_with_it_goes_elsewhere_and_one_without_it_makes_no_second_pass() -> None:
    moved = {}
    for strength in (0.0, PENALTY):
        ppo, experience = setup(gradient_penalty=strength)
        passes, accumulate = 0, ppo._accumulate

        def counted(*args: Any, accumulate: Any = accumulate) -> Any:
            nonlocal passes
            passes += 1
            return accumulate(*args)

        ppo._accumulate = counted  # type: ignore[method-assign]
        ppo.update(experience, 0.1, 1e-2, rng())
        moved[strength] = [p.detach().clone() for p in ppo.parameters]
        assert passes == (2 if strength else 1)
        assert all(p.grad is None for p in ppo.parameters)
    assert any(not torch.equal(a, b) for a, b in zip(*moved.values(), strict=True))
