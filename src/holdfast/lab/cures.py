"""Published cures against reward hacking as arms, each alone: no guard, and one thing changed against *no cure*.

All of them get as many labels as the guarded run spends in all, nearly all of them at the start, and take as many
steps; like *tuned* they end with the mean of their last policies. What has a strength has one for all scenarios, a
constant here: the sweeps of the same names compare some.
"""

from __future__ import annotations

from holdfast.lab.experiment import Arm
from holdfast.lab.scenarios import STANDS_STILL

UNGUARDED = "guard.mode=off"
FIXED_KL = ("kl.controller=fixed", "kl.beta=0.05")
ONE = "reward.members=1"
SEVERAL = "reward.members=3"

# What is usual, with more labels.
UNCURED: tuple[str, ...] = (*FIXED_KL, *STANDS_STILL, UNGUARDED)
# A refit needs no new labels here, and so none that a gate could judge it by; all labels take part in each.
REFITTED = ("refresh.every_rounds=1", "refresh.weights=importance", "refresh.comparisons=1000000", "gate.use=false")

# First choices: the sweeps of these names on seeds below 100 are for better ones.
GRADIENT_PENALTY, STOP_AT_KL, ADVANTAGE_OFFSET = 0.1, 4.0, 0.1


def cure(name: str, words: str, *settings: str) -> Arm:
    """An arm that is *no cure* but for these settings."""
    return Arm(name, (*UNCURED, *settings), words, spends_like="guarded")


NO_CURE = cure("no cure", "one reward model, fixed KL 0.05, never refreshed, with as many labels as guarded", ONE)

CURES: tuple[Arm, ...] = (
    cure("uncertainty", "mean less lambda times the variance of three members (Coste et al. 2023)", SEVERAL,
         "reward.aggregation=uncertainty"),
    cure("worst case", "the lowest of three members (Coste et al. 2023)", SEVERAL, "reward.aggregation=worst"),
    cure("averaged weights", "one reward model, the mean of three (WARM, Rame et al. 2024)", SEVERAL,
         "reward.aggregation=averaged"),
    cure("bounded reward", "sigmoid of the score less a reference answer's (PAR, Fu et al. 2025)", ONE,
         "reward.shaping=sigmoid"),
    cure("importance", "refitted each round, labels weighed by how likely the policy finds their answers (OCRM, "
         "Ackermann et al. 2025)", ONE, *REFITTED),
    cure("gradient penalty", "a penalty on the norm of the policy's gradient (Ackermann et al. 2026)",
         ONE, f"ppo.gradient_penalty={GRADIENT_PENALTY}"),
    cure("stop at KL", "the run ends where KL reaches a budget", ONE, f"run.stop_at_kl={STOP_AT_KL}"),
    cure("nudge", "a constant added to every advantage (Asghari et al. 2026)", ONE,
         f"ppo.advantage_offset={ADVANTAGE_OFFSET}"),
    Arm("refreshed", (UNGUARDED,), "the default without its guard: fresh labels and a refresh every round",
        spends_like="guarded"),
)  # fmt: skip
