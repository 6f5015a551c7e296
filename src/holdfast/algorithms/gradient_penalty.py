"""Gradient regularisation: a loss plus a penalty on the norm of its own gradient."""

from __future__ import annotations

from torch import Tensor


def regularised_gradient(gradient: Tensor, ahead: Tensor, penalty: float, step: float) -> Tensor:
    """The gradient of a loss with a penalty on the squared norm of its gradient, by a forward difference.

        J(w) = L(w) + penalty / 2 * |g(w)|^2,  g = grad L
        grad J = g + penalty * H g,            H g = (g(w + step * g) - g(w)) / step + O(step)

    `gradient` is g(w) and `ahead` is g(w + step * g). Flat regions, in which the policy's gradient is small, are those
    in which a reward model is more often right (Ackermann et al. 2026, arXiv:2602.18037); the difference is that of
    Karakida et al. 2023 (Proceedings of ICML, PMLR 202).
    """
    return gradient + penalty * (ahead - gradient) / step
