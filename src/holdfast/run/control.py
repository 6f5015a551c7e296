"""What steers the policy of a run, as its settings and its model have it: KL budget, controller, size of steps."""

from __future__ import annotations

from holdfast.config import Config
from holdfast.control.kl import AdaptiveKL, BudgetKL, FixedKL, KLBudget, KLController, unit_of
from holdfast.text import format_setting, format_value


def budget_of(config: Config, entropy: float) -> KLBudget:
    """How far the policy may go, for answers of so much entropy."""
    kl = config.kl
    budget = KLBudget(kl.budget_start, kl.budget_per_1000_labels, kl.budget_ceiling)
    return budget.scaled(kl.unit or unit_of(entropy))


def controller_of(config: Config, budget: KLBudget) -> KLController:
    """What sets beta."""
    kl = config.kl
    if kl.controller == "fixed":
        return FixedKL(kl.beta)
    if kl.controller == "adaptive":
        return AdaptiveKL(kl.beta, kl.target)
    return BudgetKL(kl.beta, budget.start, budget.per_1000_labels, budget.ceiling)


def budget_words(config: Config, entropy: float, labels: int) -> str:
    """What the run aims at, at its start."""
    budget, because = budget_of(config, entropy), f"entropy of the reference's answers {format_value(entropy)} nats"
    if config.kl.controller == "fixed":
        return f"KL to the reference has no target, and a weight of {format_setting(config.kl.beta)} ({because})."
    if config.kl.controller == "adaptive":
        return f"KL target {format_setting(config.kl.target)} nats an answer ({because})."
    now, most = format_value(budget.at(labels)), format_value(budget.ceiling)
    return f"KL budget {now} nats an answer, growing with the labels up to {most} ({because})."
