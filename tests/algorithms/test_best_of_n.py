"""Best-of-n: the estimator against every subset there is, its KL against a distribution written out."""

from __future__ import annotations

import math
from itertools import combinations, permutations

import pytest
import torch

from holdfast.algorithms.best_of_n import best_of_n_estimate, best_of_n_kl, best_of_n_weights

PROXY = [0.3, -1.2, 2.0, 0.9, -0.4, 1.1, 0.0]
GOLD = [1.0, -2.0, 0.5, 3.0, -1.0, 0.25, 4.0]


@pytest.mark.parametrize("n", range(1, 8))
def test_the_estimator_is_the_mean_over_all_subsets(n: int) -> None:
    chosen = [GOLD[max(subset, key=lambda i: PROXY[i])] for subset in combinations(range(7), n)]
    estimate = best_of_n_estimate(torch.tensor(PROXY), torch.tensor(GOLD), n)
    assert estimate == pytest.approx(sum(chosen) / len(chosen), abs=1e-6)


@pytest.mark.parametrize("n", range(1, 6))
def test_ties_are_broken_evenly(n: int) -> None:
    """The mean over all orders of drawing, the first of those that score highest being taken."""
    proxy, gold = [1.0, 2.0, 2.0, 0.0, 2.0], [5.0, 1.0, 2.0, 7.0, 9.0]
    taken = [gold[max(order[:n], key=lambda i: proxy[i])] for order in permutations(range(5))]
    estimate = best_of_n_estimate(torch.tensor(proxy), torch.tensor(gold), n)
    assert estimate == pytest.approx(sum(taken) / len(taken), abs=1e-9)


def test_weights_are_a_distribution_however_many_answers() -> None:
    for count, n in ((7, 3), (1024, 512), (5000, 1), (5000, 5000)):
        assert float(best_of_n_weights(count, n).sum()) == pytest.approx(1.0, abs=1e-9)
    # C(i-1, 1) / C(4, 2) for i = 1..4: 0, 1/6, 2/6, 3/6
    assert best_of_n_weights(4, 2).tolist() == pytest.approx([0.0, 1 / 6, 2 / 6, 3 / 6])


def test_kl_by_hand_and_from_its_definition() -> None:
    assert best_of_n_kl(1) == 0.0
    assert best_of_n_kl(1000) == pytest.approx(5.9088, abs=1e-4)  # 6.907755 - 0.999
    # The best of n of a uniform score u has density n u^(n-1): KL = integral of n u^(n-1) log(n u^(n-1)).
    n, cells = 8, 200_000
    u = (torch.arange(cells, dtype=torch.float64) + 0.5) / cells
    density = n * u ** (n - 1)
    assert float((density * density.log()).mean()) == pytest.approx(best_of_n_kl(n), abs=1e-6)


@pytest.mark.parametrize("n", [0, 8])
def test_refusals(n: int) -> None:
    with pytest.raises(ValueError):
        best_of_n_estimate(torch.tensor(PROXY), torch.tensor(GOLD), n)
    with pytest.raises(ValueError):
        best_of_n_kl(-1)


def test_the_best_of_many_finds_the_best() -> None:
    assert best_of_n_estimate(torch.tensor(PROXY), torch.tensor(PROXY), 7) == pytest.approx(max(PROXY))
    assert math.isclose(best_of_n_estimate(torch.tensor(PROXY), torch.tensor(GOLD), 1), sum(GOLD) / 7, abs_tol=1e-6)
