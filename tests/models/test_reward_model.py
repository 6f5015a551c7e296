"""A reward model's head starts as the papers say; its score is read at the last token or over the answer."""

import pytest
import torch

from holdfast.models.batches import take_rows
from holdfast.models.reward_model import RewardModel, trunk_of
from tiny_models import ARCHITECTURES, PAD, build, sequences

PROMPTS, RESPONSES = sequences(4, 1, 6, seed=3), sequences(4, 1, 8, seed=4)


def test_the_head_starts_at_variance_one_over_width_plus_one() -> None:
    trunk = trunk_of(build("llama"))
    width = 16
    weights = torch.cat([RewardModel(trunk, seed).head.weight.detach().flatten() for seed in range(400)])
    # 6400 draws of N(0, 1/17): standard errors .2425 / 80 = .0030 of the mean, .2425 / 113 = .0021 of the sd.
    assert float(weights.mean()) == pytest.approx(0.0, abs=4 * 0.0030)
    assert float(weights.std()) == pytest.approx((width + 1) ** -0.5, abs=4 * 0.0021)


def test_a_quiet_head_says_the_same_more_softly() -> None:
    trunk = trunk_of(build("llama"))
    loud, quiet = (RewardModel(trunk, 3, quiet=q).head.weight for q in (False, True))
    assert torch.allclose(quiet, loud / 50)


def test_the_head_follows_from_its_seed_and_has_no_bias() -> None:
    trunk = trunk_of(build("llama"))
    a, b, c = RewardModel(trunk, 1), RewardModel(trunk, 1), RewardModel(trunk, 2)
    assert torch.equal(a.head.weight, b.head.weight)
    assert not torch.equal(a.head.weight, c.head.weight)
    assert a.head.bias.tolist() == [0.0]


@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_the_score_is_read_at_the_last_token(name: str) -> None:
    model = RewardModel(trunk_of(build(name)), 5)
    scores_B = model(take_rows(PROMPTS, RESPONSES, [0, 1, 2, 3], PAD, "cpu"))
    for i in range(4):
        ids = torch.tensor([[*PROMPTS[i], *RESPONSES[i]]])
        hidden_D = model.trunk(input_ids=ids).last_hidden_state[0, -1]
        expected = model.head.weight[0] @ hidden_D + model.head.bias[0]
        assert float(scores_B[i].detach()) == pytest.approx(float(expected.detach()), abs=1e-5)


@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_the_score_may_be_read_from_the_mean_over_the_answer(name: str) -> None:
    model = RewardModel(trunk_of(build(name)), 5, pooling="mean")
    scores_B = model(take_rows(PROMPTS, RESPONSES, [0, 1, 2, 3], PAD, "cpu"))
    for i in range(4):
        ids = torch.tensor([[*PROMPTS[i], *RESPONSES[i]]])
        hidden_TD = model.trunk(input_ids=ids).last_hidden_state[0, len(PROMPTS[i]) :]
        expected = model.head.weight[0] @ hidden_TD.mean(0) + model.head.bias[0]
        assert float(scores_B[i].detach()) == pytest.approx(float(expected.detach()), abs=1e-5)


@pytest.mark.parametrize("fast", [True, False])
def test_the_mean_over_an_empty_answer_is_the_prompt_s_last_token(fast: bool) -> None:
    model = RewardModel(trunk_of(build("llama")), 5, fast, pooling="mean")
    hidden_BD = model.hidden(take_rows([[3, 4], [5]], [[], [6, 7]], [0, 1], PAD, "cpu"))
    alone_D = model.trunk(input_ids=torch.tensor([[3, 4]])).last_hidden_state[0, -1]
    torch.testing.assert_close(hidden_BD[0], alone_D, atol=1e-5, rtol=1e-4)


def test_both_paths_give_the_mean_the_same_gradients() -> None:
    lm = build("llama")
    models = [RewardModel(trunk_of(lm), 5, fast, pooling="mean") for fast in (True, False)]
    for model in models:
        model(take_rows(PROMPTS, RESPONSES, [0, 1, 2, 3], PAD, "cpu")).square().sum().backward()
    for ours, theirs in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-4)


def test_only_the_last_position_of_a_row_gets_a_gradient() -> None:
    model = RewardModel(trunk_of(build("llama")), 5, fast=False)
    seen: list[torch.Tensor] = []

    def keep(_module: object, _inputs: object, hidden: torch.Tensor) -> None:
        hidden.retain_grad()
        seen.append(hidden)

    model.trunk.norm.register_forward_hook(keep)
    batch = take_rows(PROMPTS, RESPONSES, [0, 1, 2, 3], PAD, "cpu")
    model(batch).sum().backward()
    touched = seen[0].grad.abs().sum(-1).nonzero().tolist()  # type: ignore[union-attr]
    assert touched == [[b, len(PROMPTS[b]) + len(RESPONSES[b]) - 1] for b in range(4)]


def test_an_empty_response_is_scored_at_the_prompt_s_last_token() -> None:
    model = RewardModel(trunk_of(build("llama")), 5)
    assert take_rows([[3, 4]], [[]], [0], PAD, "cpu").last_B.tolist() == [1]
    assert torch.isfinite(model(take_rows([[3, 4], [5]], [[], [6, 7]], [0, 1], PAD, "cpu"))).all()


def test_a_trunk_is_a_copy() -> None:
    lm = build("llama")
    trunk = trunk_of(lm)
    assert not hasattr(trunk, "lm_head")
    with torch.no_grad():
        trunk.embed_tokens.weight.zero_()
    assert bool(lm.model.embed_tokens.weight.any())


def test_dropout_is_off_in_training_mode() -> None:
    model = RewardModel(trunk_of(build("gpt2", attn_pdrop=0.5, resid_pdrop=0.5, embd_pdrop=0.5)), 5)
    batch = take_rows(PROMPTS, RESPONSES, [0, 1], PAD, "cpu")
    expected = model(batch)
    model.train()
    torch.testing.assert_close(model(batch), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("fast", [True, False])
def test_the_head_reads_the_hidden_state_of_the_last_token(fast: bool) -> None:
    model = RewardModel(trunk_of(build("llama")), 5, fast)
    batch = take_rows(PROMPTS, RESPONSES, [0, 1, 2, 3], PAD, "cpu")
    hidden_BD = model.hidden(batch)
    assert hidden_BD.shape == (4, model.width)
    assert torch.equal(model.read(hidden_BD), model(batch))
    for i in range(4):
        ids = torch.tensor([[*PROMPTS[i], *RESPONSES[i]]])
        alone_D = model.trunk(input_ids=ids).last_hidden_state[0, -1]
        torch.testing.assert_close(hidden_BD[i], alone_D, atol=1e-5, rtol=1e-4)
