"""The squeezing effect without a model: one softmax, one gradient, exact.

A peaked distribution, a flat one, and equal gradients up and down, each after one step and after five; the simulation
by autograd beside the closed form.

python -m benchmarks squeezing_theory  writes benchmarks/results/squeezing_theory.json and squeezing_theory.svg
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from benchmarks.dynamics.softmax import Push, closed_form_step, simulate
from benchmarks.record import keep, keep_figure, parser_of
from holdfast.charts.chart import ChartSpec, Series

TOKENS, UNLIKELY, RATE, STEPS = 20, 19, 0.5, 5


def peaked() -> Tensor:
    """The argmax has 0.763; the others share the rest, falling by a fifth from one to the next."""
    rest = 0.8 ** torch.arange(TOKENS - 1, dtype=torch.float64)
    return torch.cat([torch.tensor([0.763], dtype=torch.float64), 0.237 * rest / rest.sum()])


def flat() -> Tensor:
    return torch.full((TOKENS,), 1 / TOKENS, dtype=torch.float64)


CASES: dict[str, tuple[Tensor, list[tuple[int, float]]]] = {
    "peaked, down on an unlikely token": (peaked(), [(UNLIKELY, -1.0)]),
    "flat, down on one token": (flat(), [(UNLIKELY, -1.0)]),
    "peaked, up and down on one token": (peaked(), [(UNLIKELY, 1.0), (UNLIKELY, -1.0)]),
}


def measure(probs: Tensor, pushes: list[tuple[int, float]]) -> dict[str, Any]:
    """The probabilities before, after one step and after all, and how far simulation and closed form are apart."""
    one = torch.ones(1, 1, dtype=torch.float64)
    steps = simulate(probs.log()[:, None], one, [Push(token, sign) for token, sign in pushes], RATE, STEPS)
    by_hand, apart = probs, 0.0
    for simulated in steps[1:]:
        by_hand = closed_form_step(by_hand, pushes, RATE)
        apart = max(apart, float((simulated[0] - by_hand).abs().max()))
    first = steps[1][0]
    return {
        "before": probs.tolist(),
        "after_one": first.tolist(),
        "after_all": steps[-1][0].tolist(),
        "argmax": [float(probs[0]), float(first[0]), float(steps[-1][0][0])],
        "others_that_fall": int((first[1:] < probs[1:] - 1e-12).sum()),
        "largest_change": float((first - probs).abs().max()),
        "simulation_less_closed_form": apart,
    }


def main(words: Sequence[str]) -> None:
    parser_of("squeezing_theory", __doc__).parse_args(words)
    results = {name: measure(*case) for name, case in CASES.items()}
    for name, r in results.items():
        argmax = " -> ".join(f"{p:.3f}" for p in r["argmax"])
        print(
            f"{name:<36} argmax {argmax} (0, 1, {STEPS} steps); {r['others_that_fall']} of {TOKENS - 1} others fall in "
            f"the first; largest change {r['largest_change']:.1e}; "
            f"closed form within {r['simulation_less_closed_form']:.0e}"
        )
    keep("squeezing_theory", {"rate": RATE, "steps": STEPS, "cases": results})
    tokens = [float(i + 1) for i in range(TOKENS)]
    keep_figure(
        "squeezing_theory",
        [
            ChartSpec(
                title=name.capitalize(),
                subtitle=f"Probabilities, before and after {STEPS} steps; token {UNLIKELY + 1} is pushed.",
                unit="probability, logarithmic",
                x_label="token",
                log_y=True,
                series=(
                    Series("before", tokens, r["before"], 0),
                    Series("after", tokens, r["after_all"], 1),
                ),
            )
            for name, r in results.items()
        ],
    )
