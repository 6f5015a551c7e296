"""The fast path against the plain transformers path: log-probs, values, scores, gradients, decoding; and when not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import peft
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM

from holdfast.models.batches import take_rows
from holdfast.models.fast import products
from holdfast.models.fast.decoding import HEADROOM, Decoder
from holdfast.models.fast.packing import Packed
from holdfast.models.fast.trunk import FastTrunk
from holdfast.models.policy import Policy
from holdfast.models.reward_model import CriticModel, RewardModel, trunk_of
from holdfast.rollout.choice import Sampling
from holdfast.rollout.sampler import sample
from tiny_models import build, sequences

CLOSE = {"atol": 1e-5, "rtol": 1e-5}


@pytest.fixture(autouse=True, params=["packed", "not packed"])
def _weights(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything once by packed weights, which these models are too small for, and once without."""
    least = 1 if request.param == "packed" else 1 << 60
    monkeypatch.setattr(products, "LEAST_SIDE", least)
    monkeypatch.setattr(products, "LEAST_WORK", least)


SHAPE: dict[str, Any] = {
    "vocab_size": 211, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "intermediate_size": 80,
    "max_position_embeddings": 512, "pad_token_id": 0, "bos_token_id": None, "eos_token_id": 1,
}  # fmt: skip


def llama(**changes: Any) -> Any:
    """Every head its own keys and values, an output matrix of its own."""
    return LlamaForCausalLM(LlamaConfig(**{**SHAPE, "num_key_value_heads": 6, "tie_word_embeddings": False, **changes}))


def qwen2(**changes: Any) -> Any:
    """Biases on queries, keys and values; three query heads share one of keys and values; tied embeddings."""
    config = Qwen2Config(**{**SHAPE, "num_key_value_heads": 2, "tie_word_embeddings": True, **changes})
    return Qwen2ForCausalLM(config)


def mistral(**changes: Any) -> Any:
    """Heads wider than hidden / heads."""
    own = {"num_key_value_heads": 3, "head_dim": 16, "sliding_window": None}
    return MistralForCausalLM(MistralConfig(**{**SHAPE, **own, **changes}))


FAMILIES: dict[str, Callable[..., Any]] = {"llama": llama, "qwen2": qwen2, "mistral": mistral}
EVERY = pytest.mark.parametrize("family", FAMILIES)


def made(family: str, **changes: Any) -> Any:
    """A model whose norms and biases are not the ones and zeros it begins with."""
    torch.manual_seed(7)
    lm = FAMILIES[family](**changes)
    with torch.no_grad():
        for name, parameter in lm.named_parameters():
            if "norm" in name or "bias" in name:
                parameter.add_(0.3 * torch.randn(parameter.shape))
            elif parameter.dim() > 1:
                parameter.mul_(3.0)
    return lm


def rows_of(*lengths: int, seed: int = 3) -> list[list[int]]:
    return [sequences(1, n, n, seed=seed + i)[0] for i, n in enumerate(lengths)]


# Rows of one token, of many, and one that is all response but for its first token.
PROMPTS = rows_of(1, 9, 4, 17, 1)
PROMPTS[1][2] = PROMPTS[3][0] = 0  # the padding token as a word of its own, whose embedding never learns
RESPONSES = rows_of(6, 1, 12, 3, 20, seed=50)
# Longest first, as micro-batches come.
ORDER = sorted(range(5), key=lambda i: -len(PROMPTS[i]) - len(RESPONSES[i]))
BATCH = take_rows(PROMPTS, RESPONSES, [i for i in ORDER for _ in range(6)], 0, "cpu")


def gradients(policy: Policy, losses: Callable[[Policy], torch.Tensor]) -> dict[str, torch.Tensor]:
    policy.zero_grad(set_to_none=True)
    losses(policy).backward()  # type: ignore[no-untyped-call]
    return {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}


@EVERY
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_values_and_gradients_equal_the_plain_path(family: str, temperature: float) -> None:
    lm = made(family)
    fast, plain = Policy(lm, value_head=True), Policy(lm, value_head=True, fast=False)
    assert fast.fast is not None
    assert plain.fast is None
    plain.value_head = fast.value_head
    torch.nn.init.normal_(fast.value_head.linear.weight)  # type: ignore[union-attr]
    ours, theirs = fast(BATCH, temperature), plain(BATCH, temperature)
    torch.testing.assert_close(ours.logprobs_N, theirs.logprobs_N, **CLOSE)
    torch.testing.assert_close(ours.values_N, theirs.values_N, **CLOSE)
    weights_N = torch.randn(BATCH.tokens, generator=torch.Generator().manual_seed(1))

    def loss(policy: Policy) -> torch.Tensor:
        out = policy(BATCH, temperature)
        assert out.values_N is not None
        return (weights_N * out.logprobs_N).sum() + (out.values_N**2).mean()

    a, b = gradients(fast, loss), gradients(plain, loss)
    assert a.keys() == b.keys()
    for name, expected in b.items():
        # Of the size of the largest: entries near zero are differences of large numbers on both paths.
        torch.testing.assert_close(a[name], expected, atol=1e-5 * float(expected.abs().max()), rtol=1e-4, msg=name)


@EVERY
def test_scores_of_a_reward_model_and_values_of_a_critic_equal_the_plain_path(family: str) -> None:
    lm = made(family)
    member = RewardModel(trunk_of(lm), 5)
    critic = CriticModel(trunk_of(lm))
    torch.nn.init.normal_(critic.head.linear.weight)
    ours = member(BATCH), critic(BATCH)
    member.fast = critic.fast = None
    for fast, plain in zip(ours, (member(BATCH), critic(BATCH)), strict=True):
        torch.testing.assert_close(fast, plain, **CLOSE)


@EVERY
def test_rows_longer_than_scores_are_kept_for(family: str) -> None:
    lm = made(family)
    prompts, responses = rows_of(3, 150), rows_of(200, 90, seed=9)
    batch = take_rows(prompts, responses, [0, 1], 0, "cpu")
    fast, plain = Policy(lm), Policy(lm, fast=False)
    torch.testing.assert_close(fast(batch).logprobs_N, plain(batch).logprobs_N, **CLOSE)
    a = gradients(fast, lambda policy: policy(batch).logprobs_N.sum())
    b = gradients(plain, lambda policy: policy(batch).logprobs_N.sum())
    for name, expected in b.items():
        torch.testing.assert_close(a[name], expected, atol=1e-5 * float(expected.abs().max()), rtol=1e-4, msg=name)


@EVERY
def test_sampling_gives_the_plain_path_s_tokens_and_logprobs(family: str) -> None:
    lm = made(family)
    sampling = Sampling(max_new_tokens=HEADROOM + 20, temperature=0.9)
    prompts = rows_of(5, 1, 9, 9, 2, 7, 30)
    outs = [
        sample(Policy(lm, value_head=True, fast=fast), prompts, sampling, 1, 0, torch.Generator().manual_seed(4))
        for fast in (True, False)
    ]
    assert outs[0].responses == outs[1].responses
    assert len(set(outs[0].lengths)) > 2, "rows end at different times, so some have to move"
    assert max(outs[0].lengths) > HEADROOM, "and one outgrows the first cache"
    torch.testing.assert_close(outs[0].logprobs_BT, outs[1].logprobs_BT, **CLOSE)


def test_every_row_of_the_decoder_stays_itself_when_others_leave() -> None:
    lm = made("qwen2")
    trunk = FastTrunk.of(lm.base_model)
    assert trunk is not None
    prompts = rows_of(5, 9, 3, 7)
    seen = [list(p) for p in prompts]
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        decoder, rows = Decoder(trunk, prompts, 30), [0, 1, 2, 3]
        hidden = decoder.prefill()
        for t in range(30):
            for place, row in enumerate(rows):
                expected = lm.base_model(torch.tensor([seen[row]])).last_hidden_state[0, -1]
                torch.testing.assert_close(hidden[place], expected, **CLOSE)
            for leaving in {8: [1], 15: [0, 2]}.get(t, []):
                going = [place for place, row in enumerate(rows) if row != leaving]
                rows = [rows[place] for place in decoder.keep(going)]
            tokens = torch.randint(2, 200, (len(rows),), generator=rng)
            for place, row in enumerate(rows):
                seen[row].append(int(tokens[place]))
            hidden = decoder.step(tokens)
    assert rows == [3]


@pytest.mark.parametrize("fused", [True, False])
def test_folded_weights_follow_the_optimiser_and_a_load(fused: bool) -> None:
    lm = made("llama")
    policy = Policy(lm)
    optimiser = torch.optim.AdamW(policy.parameters(), lr=0.05, fused=fused)
    before = {name: p.detach().clone() for name, p in lm.state_dict().items()}
    first = policy(BATCH).logprobs_N
    first.sum().backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    plain = Policy(lm, fast=False)
    with torch.no_grad():
        assert (policy(BATCH).logprobs_N - first).abs().max() > 0.01
        torch.testing.assert_close(policy(BATCH).logprobs_N, plain(BATCH).logprobs_N, atol=1e-4, rtol=1e-4)
        lm.load_state_dict(before)
        torch.testing.assert_close(policy(BATCH).logprobs_N, first, atol=0, rtol=0)


def test_two_passes_before_a_backward_keep_their_gradients_apart() -> None:
    policy = Policy(made("llama"))
    a, b = policy(BATCH).logprobs_N.sum(), (2.0 * policy(BATCH).logprobs_N).sum()
    parameters = list(policy.parameters())
    one = torch.autograd.grad(a, parameters)
    two = torch.autograd.grad(b, parameters)
    for x, y in zip(one, two, strict=True):
        torch.testing.assert_close(2.0 * x, y, atol=1e-4, rtol=1e-4)


def test_a_frozen_part_gets_no_gradient() -> None:
    lm = made("llama")
    frozen = [lm.model.embed_tokens.weight, lm.model.layers[0].self_attn.q_proj.weight]
    for parameter in frozen:
        parameter.requires_grad_(False)
    Policy(lm)(BATCH).logprobs_N.sum().backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is None for p in frozen)
    assert all(p.grad is not None for p in lm.parameters() if p.requires_grad)


@pytest.mark.parametrize(
    ("name", "lm"),
    [
        ("another family", lambda: build("gpt2")),
        ("soft caps and other norms", lambda: build("gemma2")),
        ("a window shorter than the context", lambda: mistral(sliding_window=8)),
        ("another activation", lambda: llama(hidden_act="gelu")),
        ("a bias where the arithmetic has none", lambda: llama(mlp_bias=True)),
        ("half precision", lambda: llama().to(torch.bfloat16)),
    ],
)
def test_what_is_not_plainly_llama_takes_the_plain_path(name: str, lm: Callable[[], Any]) -> None:
    assert FastTrunk.of(lm().base_model) is None, name


@pytest.mark.parametrize("settings", [{"use_dora": True}, {"lora_dropout": 0.1}, {"lora_bias": True, "bias": "none"}])
def test_an_adapter_of_another_kind_takes_the_plain_path(settings: dict[str, Any]) -> None:
    lm = llama(attention_bias=True)
    plain = peft.LoraConfig(target_modules=["q_proj"], r=2)
    assert FastTrunk.of(peft.get_peft_model(llama(), plain).base_model.model.model) is not None
    unusual = peft.get_peft_model(lm, peft.LoraConfig(target_modules=["q_proj"], r=2, **settings))
    assert FastTrunk.of(unusual.base_model.model.model) is None


def test_two_adapters_at_once_or_none_at_all_take_the_plain_path() -> None:
    config = peft.LoraConfig(target_modules=["q_proj"], r=2)
    lm = peft.get_peft_model(llama(), config)
    lm.add_adapter("other", config)
    lm.base_model.set_adapter(["default", "other"])
    assert FastTrunk.of(lm.base_model.model.model) is None
    lm.set_adapter("other")
    assert FastTrunk.of(lm.base_model.model.model) is not None
    with lm.disable_adapter():
        assert FastTrunk.of(lm.base_model.model.model) is None


def test_a_trunk_that_computes_something_else_is_found_by_the_probe() -> None:
    lm = llama()
    assert FastTrunk.of(lm.model) is not None
    lm.model.layers[1].mlp.forward = lambda x: 2.0 * x
    assert FastTrunk.of(lm.model) is None


def test_packed_rows_are_read_out_at_their_last_positions() -> None:
    packed = Packed.of([[5, 6, 7], [8], [9, 10]], [2, 1, 1])
    assert packed.ids_S.tolist() == [5, 6, 7, 8, 9, 10]
    assert packed.positions_S.tolist() == [0, 1, 2, 0, 0, 1]
    assert packed.wanted.query_N.tolist() == [1, 2, 3, 5]
    assert packed.everything.query_N.tolist() == list(range(6))


def test_chunks_are_whole_rows_of_about_the_same_work() -> None:
    lengths = [40, 30, 30, 20, 20, 10, 10, 200]
    packed = Packed.of([[2] * n for n in lengths], [1] * len(lengths))
    chunks = packed.chunks(100)
    assert [chunk.lengths for chunk in chunks] == [(40, 30, 30), (20, 20, 10, 10), (200,)]
    assert all(chunk.tokens == sum(chunk.lengths) for chunk in chunks)
    assert packed.chunks(1000) == [packed]
    assert packed.chunks(100) is chunks, "made once for all models"
