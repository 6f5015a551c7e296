"""How far answers are from the labelled ones in the reward model's own feature space.

Shapes: B answers, M labelled answers, D features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Kernel:
    """The kernel k(x, y) = exp(-rate |x - y|^2) fixed on labelled answers, so that readings can be compared."""

    labelled_MD: Tensor
    rate: float
    within: float

    def shift(self, features_BD: Tensor) -> float | None:
        """Unbiased squared maximum mean discrepancy (Gretton et al. 2012, lemma 6).

        mean over x != x' of k(x, x') + mean over y != y' of k(y, y') - 2 mean of k(x, y): 0 on average where both
        come from one distribution, and then as often below 0 as above.
        """
        count = len(features_BD)
        if count < 2:
            return None
        x_BD = features_BD.double()
        own = (float(_kernel(x_BD, x_BD, self.rate).sum()) - count) / (count * (count - 1))
        across = float(_kernel(x_BD, self.labelled_MD, self.rate).mean())
        return own + self.within - 2.0 * across


def fit_kernel(features_MD: Tensor) -> Kernel | None:
    """The rate by the median heuristic: 1 / (2 median |y - y'|^2) over the labelled answers."""
    count = len(features_MD)
    if count < 2:
        return None
    y_MD = features_MD.double()
    median = float(torch.pdist(y_MD).median()) ** 2
    rate = 1.0 / (2.0 * median) if median > 0 else 1.0
    within = (float(_kernel(y_MD, y_MD, rate).sum()) - count) / (count * (count - 1))
    return Kernel(y_MD, rate, within)


def _kernel(x_BD: Tensor, y_MD: Tensor, rate: float) -> Tensor:
    square_BM = x_BD.square().sum(1)[:, None] + y_MD.square().sum(1)[None, :] - 2.0 * x_BD @ y_MD.T
    return torch.exp(-rate * square_BM.clamp(min=0.0))


@dataclass(frozen=True, eq=False)
class Ellipsoid:
    """Mean and covariance of the labelled answers' features, the covariance as the inverse of its Cholesky factor."""

    mean_D: Tensor
    inverse_root_DD: Tensor

    def distance(self, features_BD: Tensor) -> float | None:
        """Mahalanobis distance sqrt((x - m)' S^-1 (x - m) / D), mean over answers: about 1 for labelled ones."""
        if len(features_BD) == 0:
            return None
        whitened_BD = (features_BD.double() - self.mean_D) @ self.inverse_root_DD.T
        return float(whitened_BD.square().mean(1).sqrt().mean())


def fit_ellipsoid(features_MD: Tensor) -> Ellipsoid | None:
    """The covariance is shrunk towards a sphere, so that few labelled answers in many dimensions still have one."""
    if len(features_MD) < 2:
        return None
    y_MD = features_MD.double()
    mean_D = y_MD.mean(0)
    centred_MD = y_MD - mean_D
    covariance_DD = shrunk(centred_MD.T @ centred_MD / len(y_MD), len(y_MD))
    root_DD = torch.linalg.cholesky(covariance_DD)
    unit_DD = torch.eye(len(mean_D), dtype=torch.float64, device=y_MD.device)
    return Ellipsoid(mean_D, torch.linalg.solve_triangular(root_DD, unit_DD, upper=False))


def shrunk(covariance_DD: Tensor, count: int) -> Tensor:
    """Oracle-approximating shrinkage (Chen et al. 2010, equation 23) towards trace / D times the unit matrix."""
    size = len(covariance_DD)
    trace, trace_of_square = float(covariance_DD.trace()), float(covariance_DD.square().sum())
    sphere = trace / size if trace > 0 else 1.0
    apart = trace_of_square - trace * trace / size
    top = (1.0 - 2.0 / size) * trace_of_square + trace * trace
    bottom = (count + 1.0 - 2.0 / size) * apart
    share = min(1.0, top / bottom) if bottom > 0 and math.isfinite(top) else 1.0
    unit_DD = torch.eye(size, dtype=covariance_DD.dtype, device=covariance_DD.device)
    return (1.0 - share) * covariance_DD + share * sphere * unit_DD
