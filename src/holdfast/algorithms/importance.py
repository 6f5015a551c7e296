"""How much a label about one policy's answers counts for another policy.

Shapes: P pair.
"""

from __future__ import annotations

from torch import Tensor


def importance_weights(log_ratios_P: Tensor, power: float, most: float) -> Tensor:
    """Self-normalised, tempered and truncated importance weights with mean 1.

        l_p = log pi(a|x) pi(b|x) - log mu(a|x) mu(b|x)
        w_p = min(most, exp(power l_p) / mean_q exp(power l_q)),  then divided by its own mean

    A reward model that is fitted to pairs from mu is consistent for pi where pair p counts pi(a) pi(b) / mu(a) mu(b)
    (OCRM, Ackermann et al. 2025, arXiv:2507.15507). The ratio of two whole answers spans many orders of magnitude, so
    the log-ratio is multiplied by a `power` far below 1, as in the authors' code (their `log_density_ratio_mult`); the
    truncation is ours. Power 0 gives equal weights.
    """
    if not (0.0 <= power <= 1.0 and most >= 1.0):
        raise ValueError(f"The power lies between 0 and 1 and no weight is capped below 1, not {power} and {most}.")
    # Of the scale nothing is left, and the exponential of the largest is 1.
    ratios_P = (power * (log_ratios_P - log_ratios_P.max())).exp()
    weights_P = (ratios_P / ratios_P.mean()).clamp(max=most)
    return weights_P / weights_P.mean()


def effective_count(weights_P: Tensor) -> float:
    """How many equally weighted labels these are worth: (sum w)^2 / sum w^2  (Kish 1965)."""
    return float(weights_P.sum().square() / weights_P.square().sum())
