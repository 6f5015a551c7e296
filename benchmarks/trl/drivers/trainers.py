# mypy: disable-error-code="import-not-found"
"""What all of TRL's trainers are told here."""

from __future__ import annotations

import os
from typing import Any

# On a processor, in float32, without what would only cost time.
PLAIN: dict[str, Any] = {
    "gradient_checkpointing": False,
    "bf16": False,
    "use_cpu": True,
    "report_to": "none",
    "disable_tqdm": True,
}


# What `accelerate launch` sets for FSDP2 with its default wrapping.
FSDP2 = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",
}


def shard_on_processors() -> None:
    """FSDP2 in processes without an accelerator, which accelerate would quietly turn into DDP."""
    from accelerate.state import AcceleratorState, DistributedType, PartialState

    os.environ.update(FSDP2)
    made = AcceleratorState.__init__

    def make(self: Any, *args: Any, fsdp_plugin: Any = None, **kwargs: Any) -> None:
        made(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
        if fsdp_plugin is not None:
            self.fsdp_plugin, self.distributed_type = fsdp_plugin, DistributedType.FSDP
            PartialState._shared_state["distributed_type"] = DistributedType.FSDP

    AcceleratorState.__init__ = make


def group_trainer(algorithm: str) -> tuple[Any, Any]:
    """The classes of arguments and trainer for grpo or rloo."""
    import trl

    return {"grpo": (trl.GRPOConfig, trl.GRPOTrainer), "rloo": (trl.RLOOConfig, trl.RLOOTrainer)}[algorithm]
