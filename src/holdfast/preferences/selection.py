"""Which candidate pairs to have labelled when there are more pairs than labels. K member, P pair."""

from __future__ import annotations

import torch

from holdfast.errors import HoldfastError


def select_random(n_candidates: int, n: int, generator: torch.Generator) -> list[int]:
    """Draw n of the candidates uniformly without replacement; the indices come back sorted."""
    _check_size(n_candidates, n)
    order_P = torch.randperm(n_candidates, generator=generator, device=generator.device)
    return sorted(order_P[:n].tolist())


def select_disagreement(margins_KP: torch.Tensor, n: int) -> list[int]:
    """Choose the n pairs that the ensemble's members disagree about most; the indices come back sorted.

    A member that scores a pair r_a and r_b holds that a wins with probability sigmoid(r_a - r_b) (Bradley and
    Terry, 1952). Pairs are ranked by the variance of that probability over members, which is large where they
    differ in the sign of the margin and small where they only differ in how sure they are of the same winner.
    Equal variances are taken in order of index.
    """
    if margins_KP.ndim != 2 or margins_KP.shape[0] < 2:
        raise HoldfastError(
            "Selection by disagreement needs margins of at least two ensemble members as a (members, pairs) "
            f"tensor, not {tuple(margins_KP.shape)}; use random selection with a single reward model."
        )
    if torch.isnan(margins_KP).any():
        raise HoldfastError("A margin is NaN, so pairs cannot be ranked; find the ensemble member that gave it.")
    _check_size(margins_KP.shape[1], n)
    wins_KP = torch.sigmoid(margins_KP.detach().cpu().double())
    # Rounded, so that pairs which tie in exact arithmetic also tie here, whatever the order of summation.
    variance_P = wins_KP.var(dim=0, correction=0).round(decimals=12)
    order_P = torch.argsort(variance_P, descending=True, stable=True)
    return sorted(order_P[:n].tolist())


def _check_size(n_candidates: int, n: int) -> None:
    if not 0 <= n <= n_candidates:
        raise HoldfastError(
            f"Cannot select {n} of {n_candidates} candidate pairs; ask for fewer or make more candidates."
        )
