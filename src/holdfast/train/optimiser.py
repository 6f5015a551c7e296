"""The state of a torch optimiser as tensors and a JSON document, restored bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from holdfast.checkpoint.files import JSON
from holdfast.errors import HoldfastError
from holdfast.models.sharding import full, like
from holdfast.parallel.processes import PROCESSES

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class OptimiserState:
    """An optimiser as a part of a checkpoint, in every process that has it."""

    optimiser: torch.optim.Optimizer

    def state(self) -> dict[str, JSON | torch.Tensor]:
        with PROCESSES.joint("optimiser") if PROCESSES.sharded else nullcontext():
            tensors, document = optimiser_snapshot(self.optimiser, whole=True)
        return {**document, **tensors}

    def restore(self, state: Mapping[str, Any]) -> None:
        tensors = {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}
        document = {key: value for key, value in state.items() if key not in tensors}
        with PROCESSES.joint("put optimiser", state=state):
            restore_optimiser(self.optimiser, tensors, document)


def optimiser_snapshot(
    optimizer: torch.optim.Optimizer, whole: bool = False
) -> tuple[dict[str, torch.Tensor], dict[str, JSON]]:
    """Copy each parameter's state ("state/PARAMETER/KEY") and each group's settings ("group/GROUP/KEY").

    State that is dealt out over processes is put together where it is wanted `whole`, for which all of them have to
    come here.
    """
    tensors: dict[str, torch.Tensor] = {}
    scalars: dict[str, Any] = {}
    for index, parameter in enumerate(_parameters(optimizer)):
        for key, value in optimizer.state.get(parameter, {}).items():
            value = full(value) if whole and isinstance(value, torch.Tensor) else value
            _file_under(f"state/{index}/{key}", value, tensors, scalars)
    for index, group in enumerate(optimizer.param_groups):
        for key, value in group.items():
            if key != "params":
                _file_under(f"group/{index}/{key}", value, tensors, scalars)
    return tensors, {"kind": type(optimizer).__name__, "shapes": _shapes(optimizer), "values": scalars}


def restore_optimiser(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, torch.Tensor], document: Mapping[str, Any]
) -> None:
    """Put the optimiser back into the state it had at `optimiser_snapshot`, including settings such as lr.

    `Optimizer.load_state_dict` is not used: it casts state to the parameter's type, and it keeps the tensors
    it is given, so that a second restore from one snapshot would start from changed values.
    """
    kind, shapes = type(optimizer).__name__, _shapes(optimizer)
    if (kind, shapes) != (document["kind"], document["shapes"]):
        raise HoldfastError(
            f"The saved optimiser ({document['kind']}, {_count(document['shapes'])} parameters) does not fit "
            f"the {kind} in use ({_count(shapes)} parameters); resume with the settings of the saved run."
        )
    parameters = _parameters(optimizer)
    owners = {index: group for group in optimizer.param_groups for index in _indices(group, parameters)}
    entries = {**document["values"], **tensors}
    optimizer.state.clear()
    # Settings come first: where the step counter lives depends on them.
    for path in sorted(entries, key=lambda path: not path.startswith("group/")):
        where, index, key = path.split("/", 2)
        if where == "group":
            settings = optimizer.param_groups[int(index)]
            settings[key] = _copied(entries[path], _device_of(settings.get(key)))
            continue
        parameter, group = parameters[int(index)], owners[int(index)]
        # A plain AdamW counts its steps on the CPU, wherever the parameters are.
        on_cpu = key == "step" and not (group.get("capturable") or group.get("fused"))
        copied = _copied(entries[path], _CPU if on_cpu else parameter.device)
        # What has the parameter's shape is dealt out as the parameter is.
        dealt = isinstance(copied, torch.Tensor) and copied.shape == parameter.shape
        optimizer.state[parameter][key] = like(parameter, copied) if dealt else copied


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _indices(group: Mapping[str, Any], parameters: list[torch.Tensor]) -> list[int]:
    members = {id(parameter) for parameter in group["params"]}
    return [index for index, parameter in enumerate(parameters) if id(parameter) in members]


def _shapes(optimizer: torch.optim.Optimizer) -> list[list[list[int]]]:
    return [[list(parameter.shape) for parameter in group["params"]] for group in optimizer.param_groups]


def _count(shapes: list[list[list[int]]]) -> int:
    return sum(len(group) for group in shapes)


def _file_under(path: str, value: Any, tensors: dict[str, torch.Tensor], scalars: dict[str, Any]) -> None:
    if isinstance(value, torch.Tensor):
        # Copied, because the optimiser goes on changing its own in place.
        tensors[path] = value.detach().to(_CPU, copy=True)
    else:
        scalars[path] = list(value) if isinstance(value, tuple) else value


def _device_of(value: Any) -> torch.device:
    return value.device if isinstance(value, torch.Tensor) else _CPU


def _copied(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().to(device, copy=True)
    # JSON has no tuples; torch's settings have no lists (betas is the one sequence there is).
    return tuple(value) if isinstance(value, list) else value
