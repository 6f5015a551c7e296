"""LoRA through peft: models on one frozen copy of the weights, each with small matrices of its own beside them.

    base (frozen) --+-- the base itself                   the reference: the policy with its adapters off
                    +-- adapters + value head             the policy
                    +-- adapters + reward head            each member of the ensemble

Every model has its own tree of modules, so that none has to be switched between adapters and several may work at
once; the weights in those trees are the same tensors.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors.torch import save_file
from torch import nn

from holdfast.config.schema import PolicyConfig
from holdfast.errors import HoldfastError, first_line

Model = TypeVar("Model", bound=nn.Module)

ADAPTER = "default"


@dataclass(frozen=True)
class LoRA:
    """y = W x + alpha / rank * B A x, with A of `rank` rows; only A and B learn. Rank 0 is without adapters."""

    rank: int = 0
    alpha: float = 16.0
    targets: tuple[str, ...] = ()

    def peft_config(self) -> Any:
        # Without dropout: PPO's ratio compares two passes of one network, so nothing here has any.
        return LoraConfig(
            r=self.rank,
            lora_alpha=self.alpha,  # type: ignore[arg-type, unused-ignore]
            target_modules=list(self.targets) or "all-linear",
            lora_dropout=0.0,
            bias="none",
        )


def lora_of(config: PolicyConfig) -> LoRA:
    """What the config says about adapters."""
    return LoRA(config.lora_rank, config.lora_alpha, tuple(config.lora_targets))


def lora_in(model: nn.Module) -> LoRA:
    """The adapters that a model has, by which others like them can be made; rank 0 where it has none."""
    adapters = {name: part for name, part in model.named_modules() if isinstance(part, BaseTunerLayer)}
    for part in adapters.values():
        one: Any = part
        return LoRA(one.r[ADAPTER], one.lora_alpha[ADAPTER], tuple(adapters))
    return LoRA()


def twin(model: Model) -> Model:
    """A copy that shares whatever is frozen: everything but the adapters of a LoRA model, nothing of another."""
    frozen = [p for p in model.parameters() if not p.requires_grad]
    shared = chain(frozen, model.buffers()) if frozen else iter(())
    return copy.deepcopy(model, {id(tensor): tensor for tensor in shared})


def adapted(model: Any, lora: LoRA, seed: int) -> Any:
    """A model for training: one on the same, now frozen, weights with fresh adapters, or a copy of its own at rank 0.

    A fresh adapter changes nothing: B is zero, A is drawn with the seed.
    """
    if not lora.rank:
        return copy.deepcopy(model)
    model.requires_grad_(False)
    own = twin(model)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            inject_adapter_in_model(lora.peft_config(), own, adapter_name=ADAPTER)
        except ValueError as error:
            raise HoldfastError(
                f"policy.lora_targets do not fit this model: {first_line(error)} Name its linear layers by the end of "
                "their names, such as q_proj, or leave it empty for all."
            ) from error
    for parameter in own.parameters():
        if parameter.requires_grad:
            # Whatever the base is kept in: small updates would be rounded away in 16 bits.
            parameter.data = parameter.data.float()
    return own


def is_adapted(model: nn.Module) -> bool:
    """Whether a model has adapters."""
    return any(isinstance(module, BaseTunerLayer) for module in model.modules())


def merge_into_base(model: nn.Module) -> None:
    """Add what the adapters do to the shared weights themselves; the model with the adapters is of no use after it."""
    for module in model.modules():
        if isinstance(module, BaseTunerLayer):
            module.merge()


def merged(lm: Any) -> Any:
    """The model as transformers knows it, adapters merged in, on weights of its own where it had adapters."""
    if not is_adapted(lm):
        return lm
    own = copy.deepcopy(lm)
    merge_into_base(own)
    for name, module in list(own.named_modules()):
        if isinstance(module, BaseTunerLayer):
            parent, _, last = name.rpartition(".")
            setattr(own.get_submodule(parent), last, module.get_base_layer())
    return own


def save_adapters(directory: Path, lm: Any, lora: LoRA, base: str) -> None:
    """The adapters alone, as `peft.PeftModel.from_pretrained` loads them onto the base."""
    config = lora.peft_config()
    config.task_type, config.inference_mode, config.base_model_name_or_path = "CAUSAL_LM", True, base
    config.save_pretrained(directory)
    tensors = {
        f"base_model.model.{name.replace(f'.{ADAPTER}.', '.')}": parameter.detach().cpu().contiguous()
        for name, parameter in lm.named_parameters()
        if parameter.requires_grad
    }
    save_file(tensors, directory / "adapter_model.safetensors", metadata={"format": "pt"})
