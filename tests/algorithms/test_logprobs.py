"""Log-probs of tokens and entropy."""

import math

import pytest
import torch

from holdfast.algorithms.logprobs import entropy_from_logits, token_logprobs


def test_by_hand() -> None:
    # Logits log 1, log 2, log 5: probabilities 1/8, 2/8, 5/8.
    logits_BTV = torch.tensor([[[1.0, 2.0, 5.0], [1.0, 2.0, 5.0]]]).log()
    logprobs_BT = token_logprobs(logits_BTV, torch.tensor([[2, 0]]), temperature=1.0)
    torch.testing.assert_close(logprobs_BT, torch.tensor([[5 / 8, 1 / 8]]).log())
    # At temperature 0.5 the weights are squared: 1, 4, 25 of 30.
    sharp_BT = token_logprobs(logits_BTV, torch.tensor([[2, 0]]), temperature=0.5)
    torch.testing.assert_close(sharp_BT, torch.tensor([[25 / 30, 1 / 30]]).log())


def test_half_precision_logits_are_worked_in_float32() -> None:
    logits_BTV = torch.randn(2, 3, 50, generator=torch.Generator().manual_seed(0)).bfloat16()
    tokens_BT = torch.randint(50, (2, 3), generator=torch.Generator().manual_seed(1))
    logprobs_BT = token_logprobs(logits_BTV, tokens_BT, 0.7)
    exact_BTV = torch.log_softmax(logits_BTV.double() / 0.7, -1)
    assert logprobs_BT.dtype == torch.float32
    torch.testing.assert_close(
        logprobs_BT.double(), exact_BTV.gather(-1, tokens_BT.unsqueeze(-1)).squeeze(-1), atol=1e-5, rtol=0
    )
    assert entropy_from_logits(logits_BTV).dtype == torch.float32


def test_gradient_is_one_hot_less_the_probabilities() -> None:
    logits_BTV = torch.tensor([[[1.0, 2.0, 5.0]]]).log().requires_grad_(True)
    (gradient,) = torch.autograd.grad(token_logprobs(logits_BTV, torch.tensor([[1]]), 1.0).sum(), logits_BTV)
    torch.testing.assert_close(gradient, torch.tensor([[[-1 / 8, 6 / 8, -5 / 8]]]))


def test_entropy_by_hand() -> None:
    # Uniform over 4: log 4. Half and half with two impossible tokens: log 2, and no NaN from 0 log 0.
    logits_BTV = torch.tensor([[[1.0, 1.0, 1.0, 1.0], [0.5, 0.5, 0.0, 0.0]]]).log()
    torch.testing.assert_close(entropy_from_logits(logits_BTV), torch.tensor([[math.log(4), math.log(2)]]))
    # Weights 1 and 9 at temperature 2 become 1 and 3: 0.25 log 4 + 0.75 log(4/3) = 0.562335.
    warm = entropy_from_logits(torch.tensor([[[1.0, 9.0]]]).log(), temperature=2.0)
    assert warm.item() == pytest.approx(0.562335, abs=1e-6)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_a_temperature_that_is_not_positive_is_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature"):
        token_logprobs(torch.zeros(1, 1, 2), torch.zeros(1, 1, dtype=torch.long), temperature)
