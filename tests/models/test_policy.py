"""The policy's short cuts (trunk, then head on chosen positions; padding without a mask) change no number."""

from typing import Any

import pytest
import torch

import tiny_models
from holdfast.models.batches import lay_out, micro_batches, take_rows
from holdfast.models.policy import Policy, ValueHead, turn_off_dropout
from holdfast.models.reward_model import CriticModel, trunk_of
from tiny_models import ARCHITECTURES, PAD, build, plain_logprobs, sequences

PROMPTS, RESPONSES = sequences(5, 1, 9, seed=1), sequences(5, 1, 12, seed=2)
EVERY = pytest.mark.parametrize("name", list(ARCHITECTURES))


def _logprobs(policy: Policy, temperature: float = 1.0) -> list[torch.Tensor]:
    out_BT = torch.zeros(5, 12)
    for batch in micro_batches(PROMPTS, RESPONSES, range(5), PAD, 10**6):
        lay_out(policy(batch, temperature).logprobs_N.detach(), batch, out_BT)
    return [row[: len(r)] for row, r in zip(out_BT, RESPONSES, strict=True)]


@EVERY
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_equal_a_plain_forward_of_each_row_alone(name: str, temperature: float) -> None:
    """Five rows padded on the right without a mask, against full logits and a softmax, row by row."""
    lm = build(name)
    ours = _logprobs(Policy(lm), temperature)
    for row, prompt, response in zip(ours, PROMPTS, RESPONSES, strict=True):
        expected = plain_logprobs(lm, prompt, response, temperature)
        torch.testing.assert_close(row.double(), expected, atol=1e-5, rtol=1e-5)


@EVERY
def test_what_stands_in_the_padding_does_not_matter(name: str) -> None:
    policy = Policy(build(name), value_head=True)
    torch.nn.init.normal_(policy.value_head.linear.weight)  # type: ignore[union-attr]
    a = policy(take_rows(PROMPTS, RESPONSES, [0, 1, 2, 3, 4], PAD, "cpu"))
    b = policy(take_rows(PROMPTS, RESPONSES, [0, 1, 2, 3, 4], 7, "cpu"))
    torch.testing.assert_close(a.logprobs_N, b.logprobs_N, atol=1e-6, rtol=0)
    torch.testing.assert_close(a.values_N, b.values_N, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("name", "plain"), [("llama", True), ("gpt2", True), ("qwen2", True), ("gemma2", False)])
def test_architectures_with_more_than_a_linear_head_are_found(name: str, plain: bool) -> None:
    assert Policy(build(name)).plain_head is plain


def test_a_soft_cap_is_found_even_where_a_fresh_model_s_logits_are_far_below_it() -> None:
    lm = build("gemma2", final_logit_softcapping=30.0, initializer_range=0.02)
    assert float(lm(torch.arange(1, 9)[None]).logits.detach().abs().max()) < 1
    assert not Policy(lm).plain_head
    # The probe leaves nothing behind.
    assert not lm.get_output_embeddings()._forward_hooks
    assert Policy(build("gemma2", final_logit_softcapping=None)).plain_head


@EVERY
def test_gradients_equal_a_plain_forward(name: str) -> None:
    lm = build(name)
    policy = Policy(lm)
    batch = take_rows(PROMPTS, RESPONSES, [0, 1], PAD, "cpu")
    policy(batch).logprobs_N.sum().backward()
    ours = {n: p.grad.clone() for n, p in lm.named_parameters() if p.grad is not None}
    lm.zero_grad()
    for prompt, response in zip(PROMPTS[:2], RESPONSES[:2], strict=True):
        logprobs_TV = lm(input_ids=torch.tensor([[*prompt, *response]])).logits[0].log_softmax(-1)
        for i, token in enumerate(response):
            (logprobs_TV[len(prompt) - 1 + i, token]).backward(retain_graph=True)
    for n, p in lm.named_parameters():
        torch.testing.assert_close(ours[n], p.grad, atol=1e-4, rtol=1e-4, msg=lambda m, n=n: f"{n}: {m}")


DROPOUT: dict[str, dict[str, Any]] = {
    "llama": {"attention_dropout": 0.5},
    "qwen2": {"attention_dropout": 0.5},
    "gemma2": {"attention_dropout": 0.5},
    "gpt2": {"attn_pdrop": 0.5, "resid_pdrop": 0.5, "embd_pdrop": 0.5},
}


@pytest.mark.parametrize(
    ("name", "attention"), [*((name, "eager") for name in DROPOUT), ("llama", "sdpa"), ("gpt2", "sdpa")]
)
def test_dropout_is_off_in_training_mode_too(name: str, attention: str) -> None:
    lm = build(name, attn_implementation=attention, **DROPOUT[name])
    ids = torch.tensor([[3, 4, 5, 6, 7, 8]])
    lm.train()
    assert not torch.equal(lm(ids).logits, lm(ids).logits), "the model under test drops nothing out"
    policy = Policy(lm)
    expected = policy.lm(ids).logits
    policy.train()
    torch.testing.assert_close(policy.lm(ids).logits, expected, atol=1e-6, rtol=0)


def test_turning_dropout_off_leaves_the_config_that_is_saved_with_the_model() -> None:
    lm = build("llama", attention_dropout=0.5)
    before = lm.config.to_dict()
    turn_off_dropout(lm)
    assert lm.config.to_dict() == before
    assert not lm.training


def test_a_fresh_value_head_expects_nothing() -> None:
    policy = Policy(build("llama"), value_head=True)
    out = policy(take_rows(PROMPTS, RESPONSES, [0, 1, 2], PAD, "cpu"))
    assert out.values_N is not None
    assert torch.equal(out.values_N, torch.zeros(sum(map(len, RESPONSES[:3]))))
    # It can learn: the gradient reaches its weights.
    out.values_N.sum().backward()
    assert float(policy.value_head.linear.weight.grad.abs().max()) > 0  # type: ignore[union-attr]
    assert Policy(build("llama"))(take_rows(PROMPTS, RESPONSES, [0], PAD, "cpu")).values_N is None


@EVERY
def test_values_read_the_state_before_each_response_token(name: str) -> None:
    lm = build(name)
    policy = Policy(lm, value_head=True)
    torch.nn.init.normal_(policy.value_head.linear.weight)  # type: ignore[union-attr]
    values_N = policy(take_rows(PROMPTS, RESPONSES, [2], PAD, "cpu")).values_N
    sequence = [*PROMPTS[2], *RESPONSES[2]]
    hidden_TD = lm(input_ids=torch.tensor([sequence]), output_hidden_states=True).hidden_states[-1][0]
    start = len(PROMPTS[2]) - 1
    expected = policy.value_head(hidden_TD[start : start + len(RESPONSES[2])])  # type: ignore[misc]
    torch.testing.assert_close(values_N, expected, atol=1e-5, rtol=1e-5)


def test_value_head_by_hand() -> None:
    head = ValueHead(2)
    with torch.no_grad():
        head.linear.weight.copy_(torch.tensor([[2.0, -1.0]]))
        head.linear.bias.fill_(0.5)
    # 2 * 3 - 1 * 4 + 0.5 = 2.5, also from half precision.
    assert head(torch.tensor([[3.0, 4.0]], dtype=torch.bfloat16)).tolist() == [2.5]


def test_a_critic_of_its_own_shares_nothing_with_the_policy() -> None:
    lm = build("llama")
    critic = CriticModel(trunk_of(lm))
    values_N = critic(take_rows(PROMPTS, RESPONSES, [0, 1], PAD, "cpu"))
    assert torch.equal(values_N, torch.zeros(sum(map(len, RESPONSES[:2]))))
    assert not {id(p) for p in critic.parameters()} & {id(p) for p in lm.parameters()}


def test_context_and_device() -> None:
    assert Policy(build("llama")).context == 64
    assert Policy(build("gpt2")).context == 64
    assert tiny_models.tiny_policy().device == torch.device("cpu")
