"""What moves, as named parts: captured as one snapshot, restored as one, and compared with it.

    capture(parts)            {name: part.state()}: a part's tensors in NAME.safetensors, the rest in parts.json
    restore(parts, snapshot)  the inverse; for a rollback with those parts alone that it takes back
    differences(a, b, names)  what is not bit for bit the same: a rollback reads back what it has done

A part that saves itself needs no more than the two methods of `Part`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from holdfast.checkpoint.files import JSON
from holdfast.checkpoint.snapshot import Snapshot
from holdfast.errors import HoldfastError

# Tensors and JSON values by name, side by side.
State: TypeAlias = "Mapping[str, JSON | Tensor]"

DOCUMENT = "parts"


class Part(Protocol):
    """Something that moves, and saves and restores itself."""

    def state(self) -> State:
        """Everything of it that moves; what is in it may go on moving, so it is saved before the part goes on."""
        ...

    def restore(self, state: Any, /) -> None:
        """Take back what `state` gave, exactly."""
        ...


def capture(parts: Mapping[str, Part]) -> Snapshot:
    """The state of all parts at this moment."""
    tensors: dict[str, dict[str, Tensor]] = {}
    documents: dict[str, dict[str, JSON]] = {}
    for name, part in parts.items():
        documents[name] = {}
        for key, value in part.state().items():
            if isinstance(value, Tensor):
                tensors.setdefault(name, {})[key] = value
            else:
                documents[name][key] = value
    return Snapshot(tensors, {DOCUMENT: documents})


def state_of(snapshot: Snapshot, name: str) -> dict[str, Any]:
    """What a part gave when the snapshot was made."""
    documents: Any = snapshot.documents.get(DOCUMENT, {})
    if name not in documents:
        raise HoldfastError(
            f"The checkpoint was made without the part {name!r}; resume with the settings that the run began with."
        )
    return {**documents[name], **snapshot.tensors.get(name, {})}


def restore(parts: Mapping[str, Part], snapshot: Snapshot) -> None:
    """Put the parts back, in their order, to where the snapshot has them; one that it lacks is met before any moves."""
    states = {name: state_of(snapshot, name) for name in parts}
    for name, part in parts.items():
        try:
            part.restore(states[name])
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # torch's way to say that tensors are of another number or shape
            raise HoldfastError(
                f"The checkpoint's {name} does not fit the run; resume with the settings that the run began with."
            ) from error


def differences(before: Snapshot, now: Snapshot, names: Iterable[str]) -> list[str]:
    """Which values of the named parts are not the same in both, as NAME/KEY."""
    different = []
    for name in names:
        then, here = state_of(before, name), state_of(now, name)
        keys = [*then, *(key for key in here if key not in then)]
        different += [f"{name}/{key}" for key in keys if not _same(then.get(key), here.get(key))]
    return different


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return torch.equal(a.cpu(), b.cpu())
    return not isinstance(a, Tensor) and not isinstance(b, Tensor) and bool(a == b)
