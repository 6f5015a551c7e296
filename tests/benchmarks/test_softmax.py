"""The squeezing effect: autograd's step and the closed form agree, and the theory's three claims hold."""

from __future__ import annotations

import pytest
import torch
from benchmarks.dynamics.softmax import Push, closed_form_step, simulate

ONE = torch.ones(1, 1, dtype=torch.float64)
# The argmax has 0.763 of the mass; token 9 is the least likely.
PEAKED = torch.tensor([0.763, *[0.237 / 19] * 19], dtype=torch.float64)
PEAKED = PEAKED * torch.linspace(1.2, 0.8, 20, dtype=torch.float64)
PEAKED = PEAKED / PEAKED.sum()
FLAT = torch.full((20,), 1 / 20, dtype=torch.float64)
UNLIKELY = 19


def step(probs: torch.Tensor, pushes: list[tuple[int, float]], rate: float, steps: int = 1) -> torch.Tensor:
    weights = probs.log()[:, None]
    return simulate(weights, ONE, [Push(token, sign) for token, sign in pushes], rate, steps)[-1][0]


@pytest.mark.parametrize("probs", [PEAKED, FLAT], ids=["peaked", "flat"])
@pytest.mark.parametrize(
    "pushes", [[(UNLIKELY, -1.0)], [(UNLIKELY, 1.0)], [(3, 1.0), (UNLIKELY, -1.0)], [(0, -1.0)]], ids=str
)
@pytest.mark.parametrize("rate", [0.05, 1.0, 5.0])
def test_the_simulation_is_the_closed_form(probs: torch.Tensor, pushes: list[tuple[int, float]], rate: float) -> None:
    assert float((step(probs, pushes, rate) - closed_form_step(probs, pushes, rate)).abs().max()) < 1e-6


def test_many_steps_are_the_closed_form_again_and_again() -> None:
    probs = PEAKED
    for _ in range(50):
        probs = closed_form_step(probs, [(UNLIKELY, -1.0)], 0.5)
    assert float((step(PEAKED, [(UNLIKELY, -1.0)], 0.5, 50) - probs).abs().max()) < 1e-6


def test_a_negative_gradient_on_an_unlikely_token_feeds_the_argmax_and_starves_the_rest() -> None:
    after = step(PEAKED, [(UNLIKELY, -1.0)], 0.5)
    assert after[0] > PEAKED[0]
    assert bool((after[1:] < PEAKED[1:]).all())
    # On and on: the argmax takes nearly everything.
    assert float(step(PEAKED, [(UNLIKELY, -1.0)], 0.5, 20)[0]) > 0.98


def test_of_a_flat_distribution_everyone_else_gains_alike() -> None:
    after = step(FLAT, [(UNLIKELY, -1.0)], 0.5)
    assert bool((after[:UNLIKELY] > FLAT[:UNLIKELY]).all())
    assert float(after[:UNLIKELY].max() - after[:UNLIKELY].min()) < 1e-12
    assert after[UNLIKELY] < FLAT[UNLIKELY]


def test_equal_and_opposite_gradients_in_one_context_cancel() -> None:
    same = step(PEAKED, [(UNLIKELY, 1.0), (UNLIKELY, -1.0)], 5.0)
    assert float((same - PEAKED).abs().max()) < 1e-12
    # On two tokens the pi terms cancel: only those two move, and the odds among all others stay.
    after = step(PEAKED, [(3, 1.0), (UNLIKELY, -1.0)], 0.5)
    others = [i for i in range(20) if i not in (3, UNLIKELY)]
    odds = after[others] / PEAKED[others]
    assert float(odds.max() - odds.min()) < 1e-12


def test_contexts_that_share_nothing_do_not_move_each_other() -> None:
    """Prefixes that have parted: the push down squeezes its own context and leaves the other's push up alone."""
    weights = torch.stack([PEAKED.log(), FLAT.log()], dim=1)
    apart = torch.eye(2, dtype=torch.float64)
    after = simulate(weights, apart, [Push(UNLIKELY, -1.0, context=0), Push(3, 1.0, context=1)], 0.5)[-1]
    assert float((after[0] - closed_form_step(PEAKED, [(UNLIKELY, -1.0)], 0.5)).abs().max()) < 1e-6
    assert float((after[1] - closed_form_step(FLAT, [(3, 1.0)], 0.5)).abs().max()) < 1e-6


def test_a_shared_feature_carries_the_push_over() -> None:
    """z = W x and the step of W is s (e - pi) x', so another context moves by that times x . x'."""
    contexts = torch.tensor([[1.0, 0.0], [0.6, 0.8]], dtype=torch.float64)
    rng = torch.Generator().manual_seed(0)
    weights = torch.randn(20, 2, dtype=torch.float64, generator=rng)
    before, after = simulate(weights, contexts, [Push(4, -1.0, context=0)], 0.5)
    change = -0.5 * (torch.eye(20, dtype=torch.float64)[4] - before[0])
    moved = before[1] * (0.6 * change).exp()
    assert float((after[1] - moved / moved.sum()).abs().max()) < 1e-6
