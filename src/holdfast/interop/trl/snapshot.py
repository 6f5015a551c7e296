"""Everything of a trainer that a rollback brings back, taken and put back in place.

policy      the weights that are trained, and buffers
optimiser   its state and settings; scheduler and gradient scaler as documents
rng         of Python, numpy and torch, on the processor and on every graphics card, of this process

Weights that are dealt out over processes are kept whole, and dealt out again when they are put back. What goes on:
steps, data, logs, labels and the guard's memory.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.checkpoint.snapshot import Snapshot
from holdfast.errors import HoldfastError
from holdfast.models.sharding import full, is_dealt, like
from holdfast.train.optimiser import optimiser_snapshot, restore_optimiser

RNG = "rng"


def trained_weights(model: nn.Module) -> dict[str, Tensor]:
    """What training moves, by name: of a model with adapters those alone. Live tensors, not copies."""
    weights = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    kept = model.state_dict()
    return weights | {name: b for name, b in model.named_buffers() if name in kept}


def put_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Write whole weights into the live tensors, so that whoever holds those (optimiser, wrappers) sees them."""
    for live, given in _beside(trained_weights(model), weights):
        live.copy_(like(live, given.to(live.device)))


def shares_of(model: nn.Module) -> dict[str, Tensor]:
    """Copies on the processor of what this process holds of the weights: all of them where none is dealt out."""
    return {name: _share(live).to("cpu", copy=True) for name, live in trained_weights(model).items()}


def put_shares(model: nn.Module, shares: Mapping[str, Tensor]) -> None:
    """The inverse."""
    for live, given in _beside(trained_weights(model), shares):
        _share(live).copy_(given)


def shares_among(model: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """This process's part of whole weights."""
    return {name: _share(like(live, weights[name])).clone() for name, live in trained_weights(model).items()}


def _share(tensor: Tensor) -> Tensor:
    held: Tensor = tensor.to_local() if is_dealt(tensor) else tensor  # type: ignore[attr-defined]
    return held


def _beside(live: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    if live.keys() != given.keys():
        odd = sorted(live.keys() ^ given.keys())[0]
        raise HoldfastError(f"The kept weights are of another model ({odd}); use the model that the run began with.")
    with torch.no_grad():
        for name, tensor in live.items():
            yield tensor, given[name]


def capture(trainer: Any) -> Snapshot:
    """The trainer at this moment, copied whole; all processes have to come here, and have their own random numbers."""
    weights = trained_weights(trainer.accelerator.unwrap_model(trainer.model))
    tensors, document = optimiser_snapshot(inner(trainer.optimizer, "optimizer"), whole=True)
    scaler = getattr(trainer.accelerator, "scaler", None)
    return Snapshot(
        {
            "policy": {name: full(tensor).to("cpu", copy=True) for name, tensor in weights.items()},
            "optimiser": tensors,
            RNG: _rng_state(),
        },
        {
            "optimiser": document,
            "scheduler": inner(trainer.lr_scheduler, "scheduler").state_dict(),
            "scaler": None if scaler is None else scaler.state_dict(),
        },
    )


def put_back(trainer: Any, snapshot: Snapshot) -> None:
    """Make the trainer what it was; the random numbers stay where none were kept for this process."""
    documents: Any = snapshot.documents
    put_weights(trainer.accelerator.unwrap_model(trainer.model), snapshot.tensors["policy"])
    restore_optimiser(inner(trainer.optimizer, "optimizer"), snapshot.tensors["optimiser"], documents["optimiser"])
    inner(trainer.lr_scheduler, "scheduler").load_state_dict(dict(documents["scheduler"]))
    if documents["scaler"] is not None:
        trainer.accelerator.scaler.load_state_dict(documents["scaler"])
    if RNG in snapshot.tensors:
        _set_rng_state(snapshot.tensors[RNG])
    drop_answers(trainer)


def drop_answers(trainer: Any) -> None:
    """Have the trainer draw new answers, as after its own resume: those of before are another policy's, or lack what
    is needed from now on."""
    if hasattr(trainer, "_buffered_inputs"):
        trainer._buffered_inputs = None
    if hasattr(trainer, "_last_loaded_step"):
        trainer._last_loaded_step = -1  # an inference server still holds the weights of before


def differences(before: Snapshot, now: Snapshot) -> list[str]:
    """The parts of the one that are not bit for bit the same in the other."""
    differing = [
        f"{group}/{name}"
        for group, tensors in before.tensors.items()
        for name, tensor in tensors.items()
        if name not in now.tensors[group] or not torch.equal(tensor, now.tensors[group][name])
    ]
    return differing + [
        name for name in before.documents if _plain(before.documents[name]) != _plain(now.documents[name])
    ]


def inner(wrapped: Any, name: str) -> Any:
    """What accelerate has wrapped."""
    return getattr(wrapped, name, wrapped)


def _plain(document: Any) -> Any:
    """A document as it comes back from JSON, which has no tuples."""
    if isinstance(document, Mapping):
        return {name: _plain(value) for name, value in document.items()}
    return [_plain(value) for value in document] if isinstance(document, list | tuple) else document


def _rng_state() -> dict[str, Tensor]:
    version, words, gauss = random.getstate()
    name, key, position, has_gauss, cached = np.random.get_state()
    assert name == "MT19937", "numpy's legacy generator has no other"
    state = {
        "python": torch.tensor([version, *words]),
        "python_gauss": torch.tensor([gauss] if gauss is not None else [], dtype=torch.float64),
        "numpy": torch.tensor([*map(int, key), position, has_gauss]),
        "numpy_gauss": torch.tensor([cached], dtype=torch.float64),
        "torch": torch.random.get_rng_state(),
    }
    if torch.cuda.is_available():
        state |= {f"cuda-{n}": one for n, one in enumerate(torch.cuda.get_rng_state_all())}
    return state


def _set_rng_state(state: Mapping[str, Tensor]) -> None:
    version, *words = state["python"].tolist()
    random.setstate((version, tuple(words), *(state["python_gauss"].tolist() or [None])))
    *key, position, has_gauss = state["numpy"].tolist()
    cached = float(state["numpy_gauss"])
    np.random.set_state(("MT19937", np.array(key, dtype=np.uint32), position, has_gauss, cached))
    torch.random.set_rng_state(state["torch"])
    cards = [state[name] for name in sorted(state, key=len) if name.startswith("cuda-")]
    if cards and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(cards)
