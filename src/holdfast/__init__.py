"""Holdfast: online RLHF that does not collapse and does not hack its reward.

The names below are the public ones. Each is loaded when it is first asked for, so that `import holdfast` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Where each public name lives.
_HOMES = {
    # a whole run
    "Run": "holdfast.run.run",
    "Round": "holdfast.run.run",
    "Config": "holdfast.config",
    "load_config": "holdfast.config",
    "HoldfastError": "holdfast.errors",
    # what is labelled, and who labels
    "Prompt": "holdfast.models.prompt",
    "Message": "holdfast.models.prompt",
    "Comparison": "holdfast.preferences.comparison",
    "Response": "holdfast.preferences.comparison",
    "Label": "holdfast.preferences.comparison",
    "LabelledComparison": "holdfast.preferences.comparison",
    "Labeller": "holdfast.preferences.labeller",
    "Choice": "holdfast.preferences.comparison",
    # the guard, and its parts alone
    "Guard": "holdfast.guard.guard",
    "GuardConfig": "holdfast.config.schema",
    "AuditConfig": "holdfast.config.schema",
    "StepView": "holdfast.guard.view",
    "SequentialTest": "holdfast.guard.sequential",
    "Auditor": "holdfast.guard.auditor",
    # the reward
    "RewardEnsemble": "holdfast.reward.standalone",
    "aggregate": "holdfast.reward.aggregate",
    # what steers KL, and its account
    "FixedKL": "holdfast.control.kl",
    "AdaptiveKL": "holdfast.control.kl",
    "BudgetKL": "holdfast.control.kl",
    "KLLedger": "holdfast.control.ledger",
    # the mathematics
    "gae": "holdfast.algorithms.gae",
    "assign_credit": "holdfast.algorithms.credit",
    "rloo_advantages": "holdfast.algorithms.rloo",
    "grpo_advantages": "holdfast.algorithms.grpo",
    "ppo_policy_loss": "holdfast.algorithms.ppo",
    "ppo_value_loss": "holdfast.algorithms.ppo",
    "kl_penalised_rewards": "holdfast.algorithms.ppo",
    "kl_estimate": "holdfast.algorithms.kl",
    "dpo_losses": "holdfast.algorithms.dpo",
    "PairLogProbs": "holdfast.algorithms.dpo",
    "bradley_terry_loss": "holdfast.algorithms.bradley_terry",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
