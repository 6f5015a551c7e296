"""The gradient of a penalised loss: exact on a parabola, and against autograd elsewhere."""

import pytest
import torch

from holdfast.algorithms.gradient_penalty import regularised_gradient


def test_a_parabola_by_hand() -> None:
    # L = x^2 + 2 y^2 at (1, 1): g = (2, 4), H g = (4, 16); with penalty .5 the gradient is (2 + 2, 4 + 8). A parabola's
    # difference is exact at any step: at (1 + 2s, 1 + 4s) the gradient is (2 + 4s, 4 + 16s).
    for step in (1.0, 0.25):
        gradient, ahead = torch.tensor([2.0, 4.0]), torch.tensor([2.0 + 4.0 * step, 4.0 + 16.0 * step])
        assert regularised_gradient(gradient, ahead, 0.5, step).tolist() == [4.0, 12.0]
    assert regularised_gradient(gradient, ahead, 0.0, 0.25).tolist() == [2.0, 4.0]


@pytest.mark.parametrize("penalty", [0.1, 2.0])
def test_against_autograd(penalty: float) -> None:
    """The penalised loss of a softmax policy, differentiated as it stands, twice through."""
    reward, step = torch.tensor([1.0, -0.5, 0.2, 0.0], dtype=torch.float64), 1e-5

    def loss(logits: torch.Tensor) -> torch.Tensor:
        return -(logits.softmax(0) * reward).sum()

    def gradient(at: torch.Tensor) -> torch.Tensor:
        logits = at.clone().requires_grad_(True)
        (found,) = torch.autograd.grad(loss(logits), logits, create_graph=True)
        return found

    at = torch.tensor([0.3, -1.0, 0.8, 0.1], dtype=torch.float64)
    logits = at.clone().requires_grad_(True)
    (g,) = torch.autograd.grad(loss(logits), logits, create_graph=True)
    (exact,) = torch.autograd.grad(loss(logits) + penalty / 2 * g.square().sum(), logits)
    here = gradient(at).detach()
    found = regularised_gradient(here, gradient(at + step * here).detach(), penalty, step)
    torch.testing.assert_close(found, exact, atol=1e-6, rtol=0)
    assert float((exact - here).abs().max()) > 1e-3, "the penalty is felt"
