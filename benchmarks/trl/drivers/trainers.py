# mypy: disable-error-code="import-not-found"
"""What all of TRL's trainers are told here."""

from __future__ import annotations

from typing import Any

# On a processor, in float32, without what would only cost time.
PLAIN: dict[str, Any] = {
    "gradient_checkpointing": False,
    "bf16": False,
    "use_cpu": True,
    "report_to": "none",
    "disable_tqdm": True,
}


def group_trainer(algorithm: str) -> tuple[Any, Any]:
    """The classes of arguments and trainer for grpo or rloo."""
    import trl

    return {"grpo": (trl.GRPOConfig, trl.GRPOTrainer), "rloo": (trl.RLOOConfig, trl.RLOOTrainer)}[algorithm]
