"""Models dealt out over the processes by FSDP2, and their weights as a whole.

    shard(model)         each layer is a group of weights, the rest one more; every process keeps its share of each
    whole(model)         all of them in every process while the block lasts; for passes without gradients
    whole_state(model)   all weights that move; with process 0 leading, for checkpoints
    put_state(model, s)  the inverse

A model that is not sharded is the same in every process, and then only `put_state` has anything to tell.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from holdfast.errors import HoldfastError
from holdfast.models.policy import Outputs
from holdfast.models.weights import load_moving_weights, moving_weights
from holdfast.parallel.processes import PROCESSES

Model = TypeVar("Model", bound=nn.Module)

# Sharded models that are whole just now.
_open: set[int] = set()


def shard(model: Model) -> Model:
    """Deal the model's weights out over the processes, in place, where the run asks for that and all are here."""
    if not (PROCESSES.sharded and PROCESSES.together):
        return model
    if any(is_dealt(parameter) for parameter in model.parameters()):
        raise HoldfastError(
            "processes.strategy = fsdp2 cannot deal out models that share weights, as those with adapters do; "
            "set processes.strategy to data."
        )
    # Imported where it is needed: a run in one process starts without it, and with a torch that has none.
    from torch.distributed.fsdp import fully_shard

    _teach_fsdp()
    mesh = _mesh(next(model.parameters()).device.type)
    groups: list[Any] = [*_layers(model), model]
    for group in groups:
        fully_shard(group, mesh=mesh)
    # Which layer a backward pass gathers next is fixed here. By default it follows from the passes forward so far, and
    # those that process 0 makes alone would have it ask for a layer that the others do not give: all wait for ever.
    for group, before in zip(groups, [groups[0], *groups], strict=False):
        group.set_modules_to_backward_prefetch([before])
    # Otherwise the first layer that is called by itself would take itself for the root.
    model._get_fsdp_state()._lazy_init()  # type: ignore[operator]
    return model


@cache
def _mesh(device: str) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(device, (PROCESSES.world,))


@cache
def _teach_fsdp() -> None:
    from torch.utils import _pytree

    # FSDP looks for tensors in what a model returns, and sees into no dataclass that it does not know.
    _pytree.register_dataclass(Outputs)
    # Scores and values are views of what a head gives; nothing here changes them in place.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")


def _layers(model: nn.Module) -> list[nn.Module]:
    """The layers that transformers would not split either."""
    kinds = {kind for part in model.modules() for kind in (getattr(part, "_no_split_modules", None) or ())}
    return [part for part in model.modules() if type(part).__name__ in kinds]


def is_sharded(model: nn.Module) -> bool:
    """Whether the weights are dealt out over processes."""
    return hasattr(model, "reshard")


@contextmanager
def whole(*models: nn.Module) -> Iterator[None]:
    """All weights in every process while the block lasts; all processes have to come here, and go, together."""
    closed = [model for model in models if is_sharded(model) and id(model) not in _open]
    for model in closed:
        for group in _groups(model):
            group.set_reshard_after_forward(False, recurse=False)
            group.unshard()
        _open.add(id(model))
    try:
        yield
    finally:
        for model in closed:
            close(model)


def close(model: nn.Module) -> None:
    """Give back all weights but this process's own share."""
    for group in _groups(model):
        group.reshard()
        # The outermost group stays together from the pass forward to the one back, which begins with it.
        group.set_reshard_after_forward(group is not model, recurse=False)
    _open.discard(id(model))


@contextmanager
def opened(model: nn.Module) -> Iterator[None]:
    """The whole model for process 0 to work with alone; the others only give their share."""
    if not is_sharded(model) or PROCESSES.together:
        yield
        return
    with PROCESSES.joint("open", [model]), PROCESSES.watched():
        keeping = whole(model)
        keeping.__enter__()
    try:
        yield
    finally:
        with PROCESSES.joint("close", [model]):
            keeping.__exit__(None, None, None)


def _groups(model: nn.Module) -> list[Any]:
    return [part for part in model.modules() if is_sharded(part)]


def full(tensor: Tensor) -> Tensor:
    """A tensor as a whole; of one that is dealt out, all processes have to ask."""
    return plain(tensor.detach())


def like(tensor: Tensor, whole_tensor: Tensor) -> Tensor:
    """A given whole tensor dealt out as another one is."""
    if not is_dealt(tensor) or is_dealt(whole_tensor):
        return whole_tensor
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = tensor.device_mesh, tensor.placements  # type: ignore[attr-defined]
    return distribute_tensor(whole_tensor, mesh, placements, src_data_rank=None)


def whole_state(model: nn.Module) -> dict[str, Tensor]:
    """The model's weights that move, as whole tensors: all of them but a frozen base."""
    if not is_sharded(model):
        return moving_weights(model)
    with PROCESSES.joint("state", [model]), PROCESSES.watched():
        return {name: full(tensor).cpu() for name, tensor in model.state_dict().items()}


def put_state(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load whole tensors into the model, in every process that holds it."""
    if not is_sharded(model):
        load_moving_weights(model, state)
        with PROCESSES.joint("put", [model], state=state):
            return
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    if {name: tensor.shape for name, tensor in state.items()} != shapes:
        raise RuntimeError("The weights are those of another model.")
    with PROCESSES.joint("put", [model], state=state):
        copy_in(model, state)


@dataclass(frozen=True)
class ModelWeights:
    """A model's weights that move, as a part of a checkpoint."""

    model: nn.Module

    def state(self) -> dict[str, Tensor]:
        return whole_state(self.model)

    def restore(self, state: Mapping[str, Tensor]) -> None:
        put_state(self.model, state)


@torch.no_grad()
def copy_in(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """This process's part of `put_state`."""
    own = model.state_dict()
    for name, values in state.items():
        own[name].copy_(like(own[name], values.to(own[name].device)))


def is_dealt(tensor: Any) -> bool:
    """Whether a tensor is one process's share of a larger one."""
    return hasattr(tensor, "full_tensor")


def plain(tensor: Any) -> Tensor:
    """What came out of sharded tensors, as an ordinary one."""
    whole: Tensor = tensor.full_tensor() if is_dealt(tensor) else tensor
    return whole
