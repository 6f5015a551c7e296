"""DPO and its relatives against numbers worked out by hand.

The pair of all tests: log pi -10 (4 tokens) and -14 (2 tokens), log ref -12 and -13.
    gains: chosen -10 + 12 = 2, rejected -14 + 13 = -1, so chosen less rejected = 3
"""

from __future__ import annotations

import math

import pytest
import torch

from holdfast.algorithms.dpo import DPOKind, PairLogProbs, dpo_losses, dpo_margins


def pair(chosen: float = -10.0, rejected: float = -14.0) -> PairLogProbs:
    return PairLogProbs(*(torch.tensor([x]) for x in (chosen, rejected, -12.0, -13.0, 4.0, 2.0)))


def loss(kind: DPOKind, beta: float, of: PairLogProbs | None = None, **more: object) -> float:
    return float(dpo_losses(kind, of or pair(), beta, **more))  # type: ignore[arg-type]


def test_sigmoid_by_hand() -> None:
    # beta 0.1: h = 0.3; log(1 + e^-0.3) = log(1.740818) = 0.554355
    assert float(dpo_margins("sigmoid", pair(), 0.1)) == pytest.approx(0.3)
    assert loss("sigmoid", 0.1) == pytest.approx(0.554355, abs=1e-6)


def test_ipo_by_hand() -> None:
    # means: 2/4 - (-1/2) = 1; beta 0.25: (1 - 1/0.5)^2 = 1; beta 0.1: (1 - 5)^2 = 16
    assert float(dpo_margins("ipo", pair(), 0.1)) == pytest.approx(1.0)
    assert loss("ipo", 0.25) == pytest.approx(1.0)
    assert loss("ipo", 0.1) == pytest.approx(16.0)


def test_simpo_by_hand() -> None:
    # means -2.5 and -7, difference 4.5; beta 2: h = 9; gamma 8: log(1 + e^-1) = 0.313262
    assert loss("simpo", 2.0, gamma=8.0) == pytest.approx(0.313262, abs=1e-6)
    # No reference: another one gives the same.
    other = PairLogProbs(*(torch.tensor([x]) for x in (-10.0, -14.0, -99.0, -1.0, 4.0, 2.0)))
    assert loss("simpo", 2.0, other, gamma=8.0) == loss("simpo", 2.0, gamma=8.0)


def test_conservative_by_hand() -> None:
    # 0.9 log(1 + e^-0.3) + 0.1 log(1 + e^0.3) = 0.9 * 0.554355 + 0.1 * 0.854355 = 0.584355
    assert loss("sigmoid", 0.1, label_smoothing=0.1) == pytest.approx(0.584355, abs=1e-6)


def test_shares_of_people_are_smoothing_pair_by_pair() -> None:
    assert loss("sigmoid", 0.1, share_P=torch.tensor([0.9])) == pytest.approx(loss("sigmoid", 0.1, label_smoothing=0.1))
    # t = 0.75 * 0.8 + 0.25 * 0.2 = 0.65
    both = loss("ipo", 0.25, share_P=torch.tensor([0.75]), label_smoothing=0.2)
    assert both == pytest.approx(0.65 * 1.0 + 0.35 * 9.0)  # (-1 - 2)^2 = 9


def test_nll_by_hand() -> None:
    # -log pi of the chosen answer is 10 over 4 tokens: 2.5 a token
    assert loss("sigmoid", 0.1, nll_weight=0.2) == pytest.approx(0.554355 + 0.5, abs=1e-6)


def test_the_gradient_of_dpo_by_hand() -> None:
    """d loss / d chosen = -beta sigma(-h): 0.1 * sigma(-0.3) = 0.1 * 0.425557."""
    chosen = torch.tensor([-10.0], requires_grad=True)
    rejected = torch.tensor([-14.0], requires_grad=True)
    constants = [torch.tensor([x]) for x in (-12.0, -13.0, 4.0, 2.0)]
    dpo_losses("sigmoid", PairLogProbs(chosen, rejected, *constants), 0.1).sum().backward()
    assert chosen.grad is not None
    assert rejected.grad is not None
    assert float(chosen.grad) == pytest.approx(-0.0425557, abs=1e-7)
    assert float(rejected.grad) == pytest.approx(0.0425557, abs=1e-7)


def test_ipo_has_a_bottom_and_dpo_has_none() -> None:
    margins = [float(dpo_margins("ipo", pair(chosen), 0.5)) for chosen in (-10.0, -6.0)]
    assert margins == pytest.approx([1.0, 2.0])
    assert loss("ipo", 0.5, pair(-10.0)) == pytest.approx(0.0)
    assert loss("ipo", 0.5, pair(-6.0)) > 0.5
    assert loss("sigmoid", 0.5, pair(-6.0)) < loss("sigmoid", 0.5, pair(-10.0))


def test_nothing_learnt_costs_log_2() -> None:
    assert loss("sigmoid", 0.3, pair(-12.0, -13.0)) == pytest.approx(math.log(2.0))


@pytest.mark.parametrize(("beta", "smoothing"), [(0.0, 0.0), (-1.0, 0.0), (0.1, 0.5), (0.1, -0.1)])
def test_refusals(beta: float, smoothing: float) -> None:
    with pytest.raises(ValueError):
        loss("sigmoid", beta, label_smoothing=smoothing)
