"""Learning from pairs: gradients of micro-batches add up, the chosen answer wins, online pairs are best and worst."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from holdfast.config.schema import DPOConfig, KLConfig, PPOConfig
from holdfast.models.gradients import clip_and_step
from holdfast.models.policy import Policy
from holdfast.rollout.choice import Sampling
from holdfast.rollout.likelihood import answer_logprobs
from holdfast.rollout.sampler import sample
from holdfast.train.dpo import AnswerPair, OnlineDPO, PairLearner, extremes, fresh_pairs
from holdfast.train.ppo import NonFiniteStep
from tiny_models import EOS, PAD, build, plain_logprobs, sequences, tiny_policy


def pairs_for(policy: Policy, count: int = 6) -> list[AnswerPair]:
    prompts, chosen, rejected = (sequences(count, 2, 9, seed) for seed in (1, 2, 3))
    limits = PAD, 512
    reference = [answer_logprobs(policy, prompts, side, *limits).tolist() for side in (chosen, rejected)]
    return [AnswerPair(*row) for row in zip(prompts, chosen, rejected, *reference, strict=True)]


def learner(policy: Policy, max_tokens: int = 512, **changes: Any) -> PairLearner:
    return PairLearner(policy, list(policy.parameters()), DPOConfig(**changes), 1.0, max_tokens, PAD)


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2"])
def test_log_probs_of_answers_are_the_textbook_s(name: str) -> None:
    lm = build(name)
    prompts, answers = sequences(5, 2, 9, 1), sequences(5, 1, 9, 2)
    sums = answer_logprobs(Policy(lm), prompts, answers, PAD, 24)
    expected = [float(plain_logprobs(lm, p, a).sum()) for p, a in zip(prompts, answers, strict=True)]
    assert sums.tolist() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("changes", [{}, {"loss": "ipo"}, {"loss": "simpo"}, {"nll_weight": 0.5}], ids=str)
def test_micro_batches_change_nothing(changes: dict[str, Any]) -> None:
    gradients = []
    for max_tokens in (4096, 20):
        policy = tiny_policy()
        learner(policy, max_tokens, **changes).accumulate(pairs_for(policy), 0.3)
        gradients.append([p.grad.clone() for p in policy.parameters() if p.grad is not None])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)


def test_the_gradient_is_that_of_the_written_out_loss() -> None:
    """By autograd through the model's own forward, pair by pair."""
    policy, plain = tiny_policy(), tiny_policy()
    pairs = pairs_for(policy, 3)
    learner(policy).accumulate(pairs, 0.3)
    total = torch.zeros(())
    for pair in pairs:
        gains = []
        for answer, reference in ((pair.chosen, pair.reference_chosen), (pair.rejected, pair.reference_rejected)):
            logits = plain.lm(input_ids=torch.tensor([[*pair.prompt, *answer]])).logits[0].log_softmax(-1)
            places = range(len(pair.prompt) - 1, len(pair.prompt) + len(answer) - 1)
            gains.append(sum(logits[t, token] for t, token in zip(places, answer, strict=True)) - reference)
        total = total - torch.nn.functional.logsigmoid(0.3 * (gains[0] - gains[1])) / len(pairs)
    total.backward()
    for ours, theirs in zip(policy.lm.parameters(), plain.lm.parameters(), strict=True):
        if theirs.grad is not None:
            assert ours.grad is not None
            torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-3)


def test_the_chosen_answer_wins() -> None:
    policy = tiny_policy()
    pairs, learn = pairs_for(policy), learner(policy)
    optimiser = torch.optim.AdamW(policy.parameters(), lr=1e-2)
    before = learn.measure(pairs, 0.3).metrics()
    assert before["rewards/margins"] == pytest.approx(0.0, abs=1e-5)
    for _ in range(10):
        learn.accumulate(pairs, 0.3)
        clip_and_step(optimiser, ValueError("bad"))
    after = learn.measure(pairs, 0.3).metrics()
    assert after["rewards/accuracies"] == 1.0
    assert after["rewards/margins"] > 0.5
    assert after["loss/dpo"] < before["loss/dpo"]


def test_best_and_worst_by_hand() -> None:
    rewards = torch.tensor([0.1, 0.9, 0.5, 2.0, 2.0, 2.0, -1.0, 3.0, 3.0])
    # The second prompt's answers score alike; of two equally good ones the first is taken.
    assert extremes(rewards, 3) == [(1, 0), (7, 6)]


def test_an_answer_without_a_score_is_in_no_pair() -> None:
    none = float("nan")
    # Of -, .9, .5 the scored two are a pair; one scored answer, or none, makes none.
    rewards = torch.tensor([none, 0.9, 0.5, none, none, 2.0, none, none, none, 1.0, 3.0, none])
    assert extremes(rewards, 3) == [(1, 2), (10, 9)]


def online(policy: Policy, **changes: Any) -> OnlineDPO:
    settings = {"batch": 4, "samples_per_prompt": 2, "epochs": 3, "minibatches": 2, **changes}
    return OnlineDPO(policy, PPOConfig(**settings), DPOConfig(), KLConfig(), 1.0, 512, PAD)


def test_an_online_step_makes_the_better_answer_likelier() -> None:
    policy = tiny_policy()
    prompts = [prompt for prompt in sequences(6, 2, 5) for _ in range(2)]
    rollout = sample(policy, prompts, Sampling(8), EOS, PAD, torch.Generator().manual_seed(0))
    rewards = torch.tensor([float(len(r)) for r in rollout.responses])
    dpo = online(policy)
    experience = dpo.credit(rollout, rollout.logprobs_BT, torch.zeros_like(rollout.logprobs_BT), rewards, 0.1)
    pairs = fresh_pairs(experience, 2)
    assert pairs
    assert all(len(pair.chosen) > len(pair.rejected) for pair in pairs)
    learned, kl_step = dpo.learn(experience, dpo.batches(rollout), 0.1, 1e-2, torch.Generator().manual_seed(0))
    assert kl_step > 0.0
    assert learned["control/epochs_done"] == 3.0
    assert dpo.learner.measure(pairs, 0.1).metrics()["rewards/accuracies"] == 1.0


def test_an_online_step_learns_from_the_scored_answers_alone() -> None:
    policy = tiny_policy()
    prompts = [prompt for prompt in sequences(3, 2, 5) for _ in range(2)]
    rollout = sample(policy, prompts, Sampling(8), EOS, PAD, torch.Generator().manual_seed(0))
    zeros = torch.zeros_like(rollout.logprobs_BT)
    rewards = torch.tensor([1.0, float("nan"), 2.0, 5.0, 7.0, 4.0])
    dpo = online(policy)
    experience = dpo.credit(rollout, rollout.logprobs_BT, zeros, rewards, 0.1, ~rewards.isnan())
    assert experience.advantages_BT[:, 0].tolist() == [0.0, 0.0, -1.0, 1.0, 1.0, -1.0]
    assert experience.rows == [2, 3, 4, 5]
    assert len(fresh_pairs(experience, 2)) == 2
    for scored, sentence in (([True, False] * 3, "no prompt has two"), ([False] * 6, "no answer could be scored")):
        with pytest.raises(NonFiniteStep, match=sentence):
            dpo.credit(rollout, rollout.logprobs_BT, zeros, rewards, 0.1, torch.tensor(scored))


def test_a_bad_number_puts_everything_back() -> None:
    policy = tiny_policy()
    prompts = [prompt for prompt in sequences(4, 2, 5) for _ in range(2)]
    rollout = sample(policy, prompts, Sampling(8), EOS, PAD, torch.Generator().manual_seed(0))
    zeros = torch.zeros_like(rollout.logprobs_BT)
    dpo = online(policy)
    with pytest.raises(NonFiniteStep, match="scores"):
        dpo.credit(rollout, zeros, zeros, torch.full((8,), float("nan")), 0.1)
    experience = dpo.credit(rollout, rollout.logprobs_BT, zeros, torch.arange(8.0), 0.1)
    before = [p.detach().clone() for p in policy.parameters()]
    policy.lm.lm_head.weight.register_hook(lambda grad: grad * float("nan"))
    with pytest.raises(NonFiniteStep, match="gradients"):
        dpo.learn(experience, dpo.batches(rollout), 0.1, 1e-2, torch.Generator().manual_seed(0))
    assert all(torch.equal(p, q) for p, q in zip(policy.parameters(), before, strict=True))


def test_a_step_of_ties_moves_nothing() -> None:
    policy = tiny_policy()
    prompts = [prompt for prompt in sequences(2, 2, 5) for _ in range(2)]
    rollout = sample(policy, prompts, Sampling(8), EOS, PAD, torch.Generator().manual_seed(0))
    zeros = torch.zeros_like(rollout.logprobs_BT)
    dpo = online(policy)
    experience = dpo.credit(rollout, rollout.logprobs_BT, zeros, torch.ones(4), 0.1)
    learned, kl_step = dpo.learn(experience, dpo.batches(rollout), 0.1, 1e-2, torch.Generator().manual_seed(0))
    assert learned == {"control/epochs_done": 0.0, "control/lr": 1e-2}
    assert kl_step == pytest.approx(0.0, abs=1e-6)
