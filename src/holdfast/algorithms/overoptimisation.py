"""How gold follows the distance from the reference: the two forms of Gao et al. 2022 (arXiv:2210.10760), and their fit.

    d = sqrt(KL(policy || reference)), R = gold less the reference's

    best of n:               R = d (a - b d)          highest at d = a / 2b
    reinforcement learning:  R = d (a - b log d)      highest at d = exp(a / b - 1)

Both are linear in a and b, so the least-squares fit is exact.

Shapes: M measured points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Form = Literal["best_of_n", "rl"]


@dataclass(frozen=True)
class FormFit:
    """a and b of a form, and R^2, the share of the points' variance that it explains."""

    form: Form
    a: float
    b: float
    r2: float

    def at(self, d: float) -> float:
        """Gold above the reference's at a distance."""
        if d == 0.0:
            return 0.0
        return d * (self.a - self.b * (d if self.form == "best_of_n" else math.log(d)))


def fit_form(form: Form, distance_M: Tensor, gold_M: Tensor) -> FormFit:
    """The a and b of least squares over points with d > 0."""
    d_M, gold_M = distance_M.double(), gold_M.double()
    inside_M = d_M > 0
    d_M, gold_M = d_M[inside_M], gold_M[inside_M]
    if len(d_M) < 3:
        raise ValueError(f"A form has two coefficients, which {len(d_M)} points away from the reference do not settle.")
    second_M = d_M.square() if form == "best_of_n" else d_M * d_M.log()
    columns_M2 = torch.stack([d_M, -second_M], dim=1)
    a, b = torch.linalg.lstsq(columns_M2, gold_M[:, None]).solution[:, 0].tolist()
    left_M = gold_M - columns_M2 @ torch.tensor([a, b], dtype=torch.float64)
    around_M = gold_M - gold_M.mean()
    spread = float(around_M.square().sum())
    r2 = 1.0 - float(left_M.square().sum()) / spread if spread > 0 else float("nan")
    return FormFit(form, a, b, r2)
