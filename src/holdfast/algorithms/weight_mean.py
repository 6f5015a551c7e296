"""The mean of several models' weights, one model after the other."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def mean_with_one_more(mean: Mapping[str, Tensor], count: int, newest: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The mean of `count` models and one more, from the mean so far.

        m_{n+1} = m_n + (w - m_n) / (n + 1),  so that  m_n = (w_1 + ... + w_n) / n

    Weights may be averaged where models were fine-tuned from the same weights: then the loss hardly rises on the line
    between them (Izmailov et al. 2018, arXiv:1803.05407; for reward models WARM, Rame et al. 2024, arXiv:2401.12187,
    equation 3). Models that began apart have no such line. What is no fraction (a counter) is as the newest has it.
    """
    if count == 0:
        return dict(newest)
    return {
        name: torch.lerp(mean[name], tensor, 1.0 / (count + 1)) if tensor.is_floating_point() else tensor
        for name, tensor in newest.items()
    }
