"""What processes tell each other, as JSON and tensors: dataclasses go field by field, and nothing is unpickled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

PACKAGE = __name__.partition(".")[0]


def take_apart(value: Any, tensors: list[Tensor]) -> Any:
    """A value as JSON; the tensors in it are added to a list, and stand there by their place in it."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if isinstance(value, torch.Generator):
        return {"generator": take_apart(value.get_state(), tensors)}
    if is_dataclass(value):
        kind = type(value)
        values = [take_apart(getattr(value, field.name), tensors) for field in fields(value)]
        return {"module": kind.__module__, "kind": kind.__qualname__, "fields": values}
    if isinstance(value, Mapping):
        return {"mapping": {key: take_apart(one, tensors) for key, one in value.items()}}
    # Tokens come in long lists, which are not looked through one by one.
    if isinstance(value, list | tuple) and not (value and isinstance(value[0], int | float | str)):
        return [take_apart(one, tensors) for one in value]
    return value


def put_together(value: Any, tensors: Sequence[Tensor]) -> Any:
    """What was taken apart. Tuples come as lists."""
    if isinstance(value, list) and not (value and isinstance(value[0], int | float | str)):
        return [put_together(one, tensors) for one in value]
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return tensors[value["tensor"]]
    if "generator" in value:
        rng = torch.Generator()
        rng.set_state(put_together(value["generator"], tensors))
        return rng
    if "mapping" in value:
        return {key: put_together(one, tensors) for key, one in value["mapping"].items()}
    ours = value["module"].partition(".")[0] == PACKAGE
    kind: Any = getattr(import_module(value["module"]), value["kind"]) if ours else None
    if not hasattr(kind, "__dataclass_fields__"):
        raise ValueError(f"{value['module']}.{value['kind']} is no dataclass of {PACKAGE}'s.")
    return kind(*(put_together(one, tensors) for one in value["fields"]))
