"""From a distribution to a token: what top-k and top-p keep, and that draws follow the probabilities."""

import pytest
import torch
from torch import Tensor

from holdfast.rollout.choice import draw, truncate_distribution

# Out of order on purpose, and one token that is impossible.
PROBABILITIES = [0.05, 0.40, 0.0, 0.10, 0.30, 0.15]


def _logits(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64).log()


def _kept(logits_AV: Tensor) -> list[list[int]]:
    return [row.isfinite().nonzero().flatten().tolist() for row in logits_AV]


@pytest.mark.parametrize(
    ("top_k", "kept"),
    [
        (0, [0, 1, 3, 4, 5]),  # all that are possible
        (1, [1]),
        (2, [1, 4]),
        (3, [1, 4, 5]),
        (5, [0, 1, 3, 4, 5]),
        (6, [0, 1, 3, 4, 5]),
        (99, [0, 1, 3, 4, 5]),
    ],
)
def test_top_k_keeps_the_k_likeliest(top_k: int, kept: list[int]) -> None:
    assert _kept(truncate_distribution(_logits(PROBABILITIES), 1.0, top_k)) == [kept]


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [
        # Sorted: token 1 .40, 4 .30 (.70 together), 5 .15 (.85), 3 .10 (.95), 0 .05 (1.00).
        (1e-9, [1]),
        (0.39, [1]),
        (0.41, [1, 4]),
        (0.69, [1, 4]),
        (0.71, [1, 4, 5]),
        (0.86, [1, 3, 4, 5]),
        (0.96, [0, 1, 3, 4, 5]),
        (1.0, [0, 1, 3, 4, 5]),
    ],
)
def test_top_p_keeps_the_smallest_set_that_reaches_it(top_p: float, kept: list[int]) -> None:
    assert _kept(truncate_distribution(_logits(PROBABILITIES), top_p, 0)) == [kept]


def test_top_p_counts_what_top_k_has_left() -> None:
    # The two likeliest, .40 and .30, become 4/7 = .571 and 3/7: top-p .5 needs only the first, .6 both.
    assert _kept(truncate_distribution(_logits(PROBABILITIES), 0.5, 2)) == [[1]]
    assert _kept(truncate_distribution(_logits(PROBABILITIES), 0.6, 2)) == [[1, 4]]


def test_kept_tokens_keep_their_logits_and_rows_do_not_mix() -> None:
    logits_AV = _logits(PROBABILITIES, PROBABILITIES[::-1])
    kept_AV = truncate_distribution(logits_AV, 0.8, 4)
    assert _kept(kept_AV) == [[1, 4, 5], [0, 1, 4]]
    finite_AV = kept_AV.isfinite()
    assert torch.equal(kept_AV[finite_AV], logits_AV[finite_AV])


def test_draws_follow_the_probabilities() -> None:
    """Chi-square over 20,000 draws: with 4 degrees of freedom it is above 18.47 once in a thousand seeds."""
    n = 20_000
    uniform_A = torch.rand(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    counts = torch.bincount(draw(_logits(PROBABILITIES).exp().expand(n, -1), uniform_A), minlength=6)
    expected = n * torch.tensor(PROBABILITIES, dtype=torch.float64)
    assert counts[2] == 0
    possible = expected > 0
    chi_square = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    assert float(chi_square) < 18.47


def test_draws_follow_the_renormalised_probabilities_after_truncation() -> None:
    n = 20_000
    uniform_A = torch.rand(n, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    kept_AV = truncate_distribution(_logits(PROBABILITIES), 1.0, 2).expand(n, -1)
    counts = torch.bincount(draw(kept_AV.exp(), uniform_A), minlength=6)
    assert int(counts[1] + counts[4]) == n
    # 4/7 of 20,000 is 11,429, with a standard deviation of 70.
    assert abs(int(counts[1]) - 11_429) < 4 * 70


def test_borders_between_tokens() -> None:
    # Cumulative: token 0 to .25, 1 to .75, 2 to 1. A number on a border belongs to the token after it.
    logits_AV = _logits([0.25, 0.5, 0.25]).expand(6, -1)
    uniform_A = torch.tensor([0.0, 0.2499, 0.25, 0.7499, 0.75, 0.9999], dtype=torch.float64)
    assert draw(logits_AV.exp(), uniform_A).tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_smallest_and_largest_uniform_numbers_never_draw_an_impossible_token(dtype: torch.dtype) -> None:
    rows = [[0.0, 0.3, 0.7, 0.0], [0.1] * 3 + [0.7], [0.0, 0.0, 1.0, 0.0], [1 / 3, 1 / 3, 1 / 3, 0.0]]
    logits_AV = _logits(*rows).to(dtype)
    lowest = draw(logits_AV.exp(), torch.zeros(4, dtype=torch.float64))
    assert lowest.tolist() == [1, 0, 2, 0]
    highest = draw(logits_AV.exp(), torch.full((4,), 1 - 1e-16, dtype=torch.float64))
    assert highest.tolist() == [2, 3, 2, 2]


def test_no_rounding_of_many_small_probabilities_steps_past_the_end() -> None:
    logits_AV = torch.randn(200, 5_000, generator=torch.Generator().manual_seed(2)) * 4
    logits_AV[:, -7:] = float("-inf")
    for u in (0.0, 1 - 1e-16):
        picked_A = draw(logits_AV.exp(), torch.full((200,), u, dtype=torch.float64))
        assert int(picked_A.max()) < 5_000 - 7
        assert logits_AV.gather(1, picked_A[:, None]).isfinite().all()
