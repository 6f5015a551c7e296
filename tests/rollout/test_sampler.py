"""The sampler: its log-probs are the model's, and no short cut (cache, dropped rows, chunks) changes them."""

from typing import Any

import pytest
import torch
from torch import Tensor

from holdfast.models.batches import take_rows
from holdfast.models.policy import Policy
from holdfast.parallel.cores import CORES
from holdfast.rollout import sampler
from holdfast.rollout.choice import Sampling
from holdfast.rollout.sampler import Rollout, sample
from tiny_models import ARCHITECTURES, EOS, PAD, build, plain_logprobs, sequences, tiny_policy

ROWS = 12
PROMPTS = sequences(ROWS, 1, 9, seed=11)
EVERY = pytest.mark.parametrize("name", list(ARCHITECTURES))


def _sample(policy: Policy, prompts: list[list[int]] = PROMPTS, seed: int = 0, **settings: Any) -> Rollout:
    rng = torch.Generator().manual_seed(seed)
    return sample(policy, prompts, Sampling(**{"max_new_tokens": 18, **settings}), EOS, PAD, rng)


def _with_values(lm: Any) -> Policy:
    policy = Policy(lm, value_head=True)
    torch.nn.init.normal_(policy.value_head.linear.weight)  # type: ignore[union-attr]
    return policy


def _same(a: Rollout, b: Rollout) -> None:
    assert a.responses == b.responses
    assert a.finished == b.finished
    torch.testing.assert_close(a.logprobs_BT, b.logprobs_BT, atol=1e-5, rtol=1e-5)
    assert torch.equal(a.mask_BT, b.mask_BT)


@EVERY
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_logprobs_and_values_equal_a_teacher_forced_pass(name: str, temperature: float) -> None:
    lm = build(name)
    policy = _with_values(lm)
    rollout = _sample(policy, temperature=temperature)
    assert len(set(rollout.lengths)) > 2, "rows have to end at different times for this to show anything"
    assert any(rollout.finished)
    for i, (prompt, response) in enumerate(zip(rollout.prompts, rollout.responses, strict=True)):
        expected = plain_logprobs(lm, prompt, response, temperature)
        ours = rollout.logprobs_BT[i, : len(response)].double()
        torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)
    assert rollout.values_BT is not None
    batch = take_rows(rollout.prompts, rollout.responses, list(range(ROWS)), PAD, "cpu")
    values_N = policy(batch).values_N
    torch.testing.assert_close(rollout.values_BT[rollout.mask_BT], values_N, atol=1e-4, rtol=1e-4)


@EVERY
def test_a_row_in_a_batch_is_the_row_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its uniform numbers given, neither the other rows nor their leaving changes an answer."""
    policy = Policy(build(name))
    uniform_BT = torch.rand(ROWS, 18, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    drawn: list[Tensor] = []
    monkeypatch.setattr(sampler.torch, "rand", lambda *_args, **_kwargs: drawn.pop())
    drawn.append(uniform_BT)
    together = _sample(policy)
    assert sum(together.finished) > 0
    for i, prompt in list(enumerate(PROMPTS))[:6]:
        drawn.append(uniform_BT[i : i + 1])
        alone = _sample(policy, [prompt])
        assert alone.responses[0] == together.responses[i]
        assert alone.finished[0] == together.finished[i]
        torch.testing.assert_close(
            alone.logprobs_BT[0], together.logprobs_BT[i, : together.lengths[i]], atol=1e-5, rtol=1e-5
        )


@EVERY
def test_an_answer_goes_on_as_if_eos_did_not_end_it(name: str) -> None:
    """The same draws with an EOS that never comes: each answer is a prefix of the endless one."""
    policy = Policy(build(name))
    ended = _sample(policy)
    endless = sample(policy, PROMPTS, Sampling(max_new_tokens=18), -1, PAD, torch.Generator().manual_seed(0))
    assert endless.lengths == [18] * ROWS
    for i, response in enumerate(ended.responses):
        assert endless.responses[i][: len(response)] == response
        torch.testing.assert_close(
            endless.logprobs_BT[i, : len(response)],
            ended.logprobs_BT[i, : len(response)],
            atol=1e-5,
            rtol=1e-5,
        )


@pytest.mark.parametrize("max_batch", [1, 2, 5, 12])
def test_chunks_change_nothing(max_batch: int) -> None:
    policy = Policy(build("llama"))
    _same(_sample(policy, max_batch=max_batch), _sample(policy, max_batch=256))


def test_two_cores_draw_what_one_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Policy(build("llama"))
    alone = _sample(policy)
    monkeypatch.setattr(sampler, "WORTH_CUTTING", 0)
    monkeypatch.setattr(sampler, "LEAST_ROWS", 1)
    CORES.set_workers(2)
    try:
        _same(_sample(policy), alone)
    finally:
        CORES.set_workers(1)


def test_rows_for_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "LEAST_ROWS", 2)
    assert sampler._chunks([3, 1, 2, 0, 4], most=9, cores=2) == [[3, 2, 4], [1, 0]]
    assert sampler._chunks([3, 1, 2, 0], most=9, cores=4) == [[3, 2], [1, 0]], "too few for four cores"
    assert sampler._chunks([3], most=9, cores=4) == [[3]]
    assert sampler._chunks([], most=9, cores=4) == []
    assert sampler._chunks([3, 1, 2], most=2, cores=2) == [[3, 1], [2]], "lots of their own are enough to do"


def test_the_order_of_the_prompts_is_kept() -> None:
    rollout = _sample(Policy(build("llama")), max_batch=2)
    assert rollout.prompts == PROMPTS
    assert len(rollout.responses) == ROWS


def test_the_same_seed_is_the_same_rollout_and_the_generator_moves_by_a_fixed_amount() -> None:
    policy = Policy(build("llama"))
    rng, mark = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    first = sample(policy, PROMPTS, Sampling(max_new_tokens=6), EOS, PAD, rng)
    _same(first, sample(policy, PROMPTS, Sampling(max_new_tokens=6), EOS, PAD, mark))
    assert torch.equal(rng.get_state(), mark.get_state())
    again = sample(policy, PROMPTS, Sampling(max_new_tokens=6), EOS, PAD, rng)
    assert again.responses != first.responses
    # However long the answers were, the next draw is the one after rows x max_new_tokens numbers.
    by_hand = torch.Generator().manual_seed(3)
    for _ in range(2):
        torch.rand(ROWS, 6, generator=by_hand, dtype=torch.float64)
    assert torch.equal(rng.get_state(), by_hand.get_state())


def test_mask_finished_and_padding() -> None:
    rollout = _sample(_with_values(build("llama")))
    longest = max(rollout.lengths)
    assert rollout.logprobs_BT.shape == rollout.mask_BT.shape == (ROWS, longest)
    for i, response in enumerate(rollout.responses):
        assert rollout.mask_BT[i].tolist() == [t < len(response) for t in range(longest)]
        assert EOS not in response[:-1], "EOS ends an answer"
        assert rollout.finished[i] == (response[-1] == EOS)
        assert len(response) == 18 or rollout.finished[i]
    assert rollout.values_BT is not None
    padding_BT = ~rollout.mask_BT
    assert float(rollout.logprobs_BT[padding_BT].abs().sum() + rollout.values_BT[padding_BT].abs().sum()) == 0.0
    assert _sample(Policy(build("llama"))).values_BT is None


def test_an_answer_is_cut_at_max_new_tokens() -> None:
    rollout = _sample(Policy(build("llama")), max_new_tokens=1)
    assert rollout.lengths == [1] * ROWS
    # The very first token may be the end, and then the answer is finished.
    assert rollout.finished == [r == [EOS] for r in rollout.responses]
    whole, cut = (
        _sample(Policy(build("llama")), seed=8),
        _sample(Policy(build("llama")), seed=8, max_new_tokens=3),
    )
    assert max(cut.lengths) == 3
    assert len(whole.responses) == len(cut.responses)


@EVERY
def test_temperature_0_takes_the_likeliest_token(name: str) -> None:
    lm = build(name)
    rollout = _sample(Policy(lm), temperature=0.0, max_new_tokens=6)
    for prompt, response in zip(PROMPTS, rollout.responses, strict=True):
        sequence = list(prompt)
        for token in response:
            assert int(lm(input_ids=torch.tensor([sequence])).logits[0, -1].argmax()) == token
            sequence.append(token)
    _same(rollout, _sample(Policy(lm), seed=99, temperature=0.0, max_new_tokens=6))


def test_a_low_temperature_comes_close_to_the_likeliest_token() -> None:
    policy = Policy(build("llama"))
    assert _sample(policy, temperature=1e-3).responses == _sample(policy, temperature=0.0).responses


def test_where_one_token_is_kept_it_is_the_likeliest_and_certain() -> None:
    policy = Policy(build("llama"))
    greedy = _sample(policy, temperature=0.0)
    for settings in ({"top_k": 1}, {"top_p": 1e-6}):
        rollout = _sample(policy, **settings)
        assert rollout.responses == greedy.responses
        assert not rollout.logprobs_BT.any()


def test_top_k_support_along_whole_answers() -> None:
    lm = build("llama")
    rollout = _sample(Policy(lm), top_k=3)
    ranks = []
    for prompt, response in zip(PROMPTS, rollout.responses, strict=True):
        logits_TV = lm(input_ids=torch.tensor([[*prompt, *response]])).logits[0]
        for i, token in enumerate(response):
            row = logits_TV[len(prompt) - 1 + i]
            ranks.append(int((row > row[token]).sum()))
    assert set(ranks) == {0, 1, 2}


@EVERY
def test_only_the_tokens_that_are_needed_go_through_the_model(name: str) -> None:
    policy = Policy(build(name), fast=False)
    shapes: list[tuple[int, int]] = []

    def count(_module: Any, _args: Any, kwargs: dict[str, Any]) -> None:
        shapes.append(tuple(kwargs["input_ids"].shape))

    policy.lm.base_model.register_forward_pre_hook(count, with_kwargs=True)
    rollout = _sample(policy, max_batch=5)
    # Chunks of 5, 5 and 2 rows in order of length, each padded to its longest prompt; then every token of an
    # answer but its last, which nothing follows.
    lengths = sorted(len(p) for p in PROMPTS)
    prompts = 5 * lengths[4] + 5 * lengths[9] + 2 * lengths[11]
    answers = sum(n - 1 for n in rollout.lengths)
    assert sum(rows * columns for rows, columns in shapes) == prompts + answers
    assert len(set(rollout.lengths)) > 2


def test_sampling_keeps_no_graph() -> None:
    rollout = _sample(tiny_policy(value_head=True))
    assert not rollout.logprobs_BT.requires_grad
    assert rollout.values_BT is not None
    assert not rollout.values_BT.requires_grad


def test_sampled_tokens_follow_the_model_s_distribution() -> None:
    """4,000 first tokens after one prompt against the model's own probabilities, by chi-square."""
    lm = build("llama")
    rollout = _sample(Policy(lm), [[5, 6, 7]] * 4000, seed=1, max_new_tokens=1, max_batch=4000)
    counts = torch.bincount(torch.tensor([r[0] for r in rollout.responses]), minlength=23).double()
    expected = 4000 * lm(torch.tensor([[5, 6, 7]])).logits[0, -1].detach().double().softmax(-1)
    common = expected >= 5
    rest = expected[~common].sum()
    chi_square = ((counts - expected)[common] ** 2 / expected[common]).sum()
    chi_square += (counts[~common].sum() - rest) ** 2 / rest.clamp_min(1e-9)
    # The 99.9th percentile for 22 degrees of freedom is 48.3; fewer common tokens only lower it.
    assert float(chi_square) < 48.3
