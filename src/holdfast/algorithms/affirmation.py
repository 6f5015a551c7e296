"""A constant on every advantage: the affirmative nudge.

Shapes: B answers, T response tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor


def affirmed(advantages_BT: Tensor, mask_BT: Tensor, offset: float) -> Tensor:
    """Advantages with a constant added on response tokens; 0 outside the mask.

        A'_t = A_t + offset

    With signals p - 1/2 + epsilon, epsilon > 0, every answer of the policy's own is affirmed a little, and what would
    push it away from where it stands weakens (Asghari et al. 2026, arXiv:2603.17378, equation 5). There p is the
    probability that an answer beats another one, so signals have a spread of at most 1/2; here advantages have been
    whitened, to a spread of 1.
    """
    return torch.where(mask_BT.bool(), advantages_BT + offset, 0.0)
