"""LoRA: one copy of the weights, adapters that both paths agree on, merged weights that act alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer

import tiny_models
from holdfast.errors import HoldfastError
from holdfast.models.batches import MicroBatch, take_rows
from holdfast.models.lora import LoRA, adapted, merge_into_base, merged, save_adapters, twin
from holdfast.models.policy import Policy
from holdfast.models.reward_model import RewardModel
from holdfast.models.weights import base_fingerprint, learning, load_moving_weights, moving_weights
from holdfast.rollout.choice import Sampling
from holdfast.rollout.sampler import sample

LORA = LoRA(rank=3, alpha=6.0)


def stirred(model: Any, seed: int = 0) -> Any:
    """The model with adapters that do something: a fresh B is zero."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=rng))
    return model


def a_batch() -> MicroBatch:
    prompts, responses = tiny_models.sequences(5, 2, 7, seed=1), tiny_models.sequences(5, 1, 6, seed=2)
    return take_rows(prompts, responses, range(5), tiny_models.PAD, "cpu")


@pytest.mark.parametrize("targets", [(), ("q_proj", "v_proj"), ("k_proj", "o_proj", "up_proj")])
@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_fast_path_and_transformers_agree_on_adapters(architecture: str, targets: tuple[str, ...]) -> None:
    lm = stirred(adapted(tiny_models.build(architecture), LoRA(3, 6.0, targets), seed=4))
    fast, plain = Policy(lm, value_head=True), Policy(lm, value_head=True, fast=False)
    assert fast.fast is not None
    assert plain.fast is None
    found = []
    for policy in (fast, plain):
        loss = (policy(a_batch()).logprobs_N * torch.linspace(-1, 1, a_batch().tokens)).sum()
        found.append((loss.detach(), torch.autograd.grad(loss, learning(policy.lm))))
    torch.testing.assert_close(found[0], found[1], atol=1e-4, rtol=1e-3)
    names = {name for name, p in lm.named_parameters() if p.requires_grad}
    assert names
    assert all("lora_" in name for name in names)


def test_fast_decoding_with_adapters_follows_the_plain_one() -> None:
    lm = stirred(adapted(tiny_models.build("llama"), LORA, seed=4))
    prompts = tiny_models.sequences(6, 2, 8)
    drawn = [
        sample(Policy(lm, fast=fast), prompts, Sampling(10), tiny_models.EOS, 0, torch.Generator().manual_seed(7))
        for fast in (True, False)
    ]
    assert drawn[0].responses == drawn[1].responses
    torch.testing.assert_close(drawn[0].logprobs_BT, drawn[1].logprobs_BT, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("lora", [LORA, LoRA()])
def test_layers_computed_again_give_the_same_gradients(fast: bool, lora: LoRA) -> None:
    lm = tiny_models.build("llama", num_hidden_layers=3)
    policies = [Policy(stirred(adapted(lm, lora, 1)), fast=fast, checkpointing=again) for again in (False, True)]
    kept, recomputed = (torch.autograd.grad(p(a_batch()).logprobs_N.sum(), learning(p), allow_unused=True)
                        for p in policies)  # fmt: skip
    torch.testing.assert_close(kept, recomputed, atol=1e-5, rtol=1e-4)
    assert not policies[1].lm.training


def test_layers_computed_again_keep_less() -> None:
    lm = tiny_models.build("llama", num_hidden_layers=6)
    kept = []
    for fast in (True, False):
        for again in (False, True):
            policy, saved = Policy(adapted(lm, LORA, 1), fast=fast, checkpointing=again), [0]

            def count(tensor: torch.Tensor, saved: list[int] = saved) -> torch.Tensor:
                saved[0] += tensor.numel()
                return tensor

            with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
                policy(a_batch())
            kept.append(saved[0])
    assert kept[1] < 0.5 * kept[0]
    assert kept[3] < 0.5 * kept[2]


def test_decoding_with_a_cache_goes_on_where_layers_are_computed_again() -> None:
    lm = adapted(tiny_models.build("llama"), LORA, 1)
    policy = Policy(lm, fast=False, checkpointing=True)
    policy(a_batch()).logprobs_N.sum().backward()
    plain = sample(Policy(lm, fast=False), tiny_models.sequences(3, 2, 5), Sampling(6), 1, 0, torch.Generator())
    again = sample(policy, tiny_models.sequences(3, 2, 5), Sampling(6), 1, 0, torch.Generator())
    assert plain.responses == again.responses


def test_models_on_one_base_share_its_weights_and_its_folded_weights() -> None:
    lm = tiny_models.build("llama")
    reference = Policy(lm)
    policy = Policy(adapted(lm, LORA, 1), value_head=True)
    members = [RewardModel(adapted(lm.base_model, LORA, k), k) for k in range(3)]
    anchor = twin(policy)
    base = {p.data_ptr() for p in lm.parameters()}
    for model in (policy, anchor, *members):
        frozen = [p for p in model.parameters() if not p.requires_grad]
        assert len(frozen) >= len(list(lm.base_model.parameters()))
        assert {p.data_ptr() for p in frozen} <= base
        assert model.fast is not None
        assert reference.fast is not None
        assert model.fast.weights.base is reference.fast.weights.base
        assert base.isdisjoint(p.data_ptr() for p in learning(model))
    own = [{p.data_ptr() for p in learning(model)} for model in (policy, anchor, *members)]
    assert len(set.union(*own)) == sum(map(len, own))


def test_a_fresh_adapter_changes_nothing_and_one_switched_off_is_the_reference_again() -> None:
    lm = tiny_models.build("llama")
    before = Policy(lm)(a_batch()).logprobs_N.detach().clone()
    policy = Policy(adapted(lm, LORA, 1), fast=False)
    plain = Policy(lm, fast=False)(a_batch()).logprobs_N
    assert torch.equal(policy(a_batch()).logprobs_N, plain)
    stirred(policy)
    assert not torch.allclose(policy(a_batch()).logprobs_N, plain, atol=1e-3)
    for module in policy.modules():
        if isinstance(module, BaseTunerLayer):
            module.enable_adapters(False)
    assert torch.equal(policy(a_batch()).logprobs_N, plain)
    assert torch.equal(Policy(lm)(a_batch()).logprobs_N, before)


def test_training_leaves_the_base_alone() -> None:
    lm = tiny_models.build("llama")
    weights = {name: p.clone() for name, p in lm.named_parameters()}
    policy = Policy(adapted(lm, LORA, 1))
    optimiser = torch.optim.AdamW(learning(policy), lr=0.1, fused=True)
    before = policy(a_batch()).logprobs_N.sum()
    before.backward()
    optimiser.step()
    assert not torch.equal(policy(a_batch()).logprobs_N.sum(), before)
    assert all(torch.equal(p, weights[name]) for name, p in lm.named_parameters())


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gemma2"])
def test_merged_weights_act_alike(architecture: str) -> None:
    lm = tiny_models.build(architecture)
    own = stirred(adapted(lm, LORA, 1))
    whole = merged(own)
    assert not any(isinstance(module, BaseTunerLayer) for module in whole.modules())
    assert set(whole.state_dict()) == set(lm.state_dict())
    ours, theirs = Policy(own)(a_batch()).logprobs_N, Policy(whole)(a_batch()).logprobs_N
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(ours, Policy(lm)(a_batch()).logprobs_N, atol=1e-3)


def test_what_moves_is_adapters_and_head_and_comes_back() -> None:
    lm = tiny_models.build("llama", tie_word_embeddings=True)
    policy, other = (Policy(stirred(adapted(lm, LORA, seed), seed), value_head=True) for seed in (1, 2))
    weights = {name: tensor.clone() for name, tensor in moving_weights(policy).items()}
    assert all("lora_" in name or name.startswith("value_head.") for name in weights)
    assert len(weights) == 2 * 7 * 2 + 2
    load_moving_weights(other, weights)
    assert torch.equal(policy(a_batch()).logprobs_N, other(a_batch()).logprobs_N)
    with pytest.raises(RuntimeError):
        load_moving_weights(other, {name: t for name, t in weights.items() if "lora_A" not in name})
    with pytest.raises(RuntimeError):
        load_moving_weights(Policy(tiny_models.build("llama")), weights)


def test_a_model_without_adapters_moves_whole() -> None:
    policy = Policy(tiny_models.build("llama"), value_head=True)
    assert set(moving_weights(policy)) == set(policy.state_dict())
    assert base_fingerprint(policy) == ""


def test_bases_are_told_apart() -> None:
    prints = {base_fingerprint(adapted(tiny_models.build("llama", seed=seed), LORA, 1)) for seed in (0, 0, 1)}
    assert len(prints) == 2


def test_training_through_adapters_ends_in_the_weights() -> None:
    lm = tiny_models.build("llama")
    own = stirred(adapted(lm, LORA, 1))
    expected = Policy(own)(a_batch()).logprobs_N.detach()
    merge_into_base(own)
    torch.testing.assert_close(Policy(lm)(a_batch()).logprobs_N, expected, atol=1e-4, rtol=1e-4)


def test_peft_loads_what_is_exported(tmp_path: Path) -> None:
    lm = tiny_models.build("llama")
    own = stirred(adapted(lm, LORA, 1))
    save_adapters(tmp_path, own, LORA, "base")
    theirs = PeftModel.from_pretrained(tiny_models.build("llama"), tmp_path)
    ids = torch.tensor([[3, 5, 7, 2]])
    torch.testing.assert_close(theirs(input_ids=ids).logits, own(input_ids=ids).logits)


def test_adapters_are_drawn_from_their_seed_alone() -> None:
    lm = tiny_models.build("llama")
    one, same, other = (moving_weights(adapted(lm, LORA, seed)) for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_adapters_on_a_base_in_16_bits_learn_in_32() -> None:
    lm = tiny_models.build("llama").bfloat16()
    policy = Policy(adapted(lm, LORA, 1), value_head=True)
    assert {p.dtype for p in learning(policy)} == {torch.float32}
    out = policy(a_batch())
    assert out.logprobs_N.dtype == torch.float32
    out.logprobs_N.sum().backward()
    assert all(p.grad is not None for p in learning(policy.lm))


def test_layers_that_are_not_there_are_named() -> None:
    with pytest.raises(HoldfastError, match=r"policy\.lora_targets"):
        adapted(tiny_models.build("llama"), LoRA(2, 4.0, ("attention_qkv",)), 1)
