"""Where every random draw comes from: named generators that follow from the run's seed and are checkpointed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor


def derive_seed(seed: int, *names: object) -> int:
    """A seed for one purpose, independent of the seeds for all others."""
    text = "\x1f".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def place_of(text: str) -> float:
    """Where a text falls between 0 and 1, the same each time: a draw that needs no generator."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def generator(seed: int, *names: object) -> torch.Generator:
    """A fresh generator for one purpose."""
    return torch.Generator().manual_seed(derive_seed(seed, *names))


class Streams:
    """Generators by name, made on first use. Drawing from one never moves another."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._generators: dict[str, torch.Generator] = {}

    def __getitem__(self, name: str) -> torch.Generator:
        if name not in self._generators:
            self._generators[name] = generator(self.seed, name)
        return self._generators[name]

    def state(self) -> dict[str, Tensor]:
        return {name: rng.get_state() for name, rng in sorted(self._generators.items())}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self._generators = {name: torch.Generator() for name in state}
        for name, tensor in state.items():
            self._generators[name].set_state(tensor)


class Cursor:
    """Walks through `count` items in a new random order each epoch; its state is two numbers."""

    def __init__(self, count: int, seed: int, name: str) -> None:
        if count < 1:
            raise ValueError(f"There is nothing to walk through for {name!r}: {count} items.")
        self._count, self._seed, self._name = count, seed, name
        self._epoch, self._position = 0, 0
        self._order = self._shuffled()

    def take(self, n: int) -> list[int]:
        """The next n items, going into further epochs where needed."""
        taken: list[int] = []
        while len(taken) < n:
            if self._position == self._count:
                self._epoch, self._position = self._epoch + 1, 0
                self._order = self._shuffled()
            rows = self._order[self._position : self._position + n - len(taken)]
            self._position += len(rows)
            taken += rows
        return taken

    def state(self) -> dict[str, int]:
        return {"epoch": self._epoch, "position": self._position}

    def restore(self, state: Mapping[str, int]) -> None:
        self._epoch, self._position = int(state["epoch"]), int(state["position"])
        self._order = self._shuffled()

    def _shuffled(self) -> list[int]:
        rng = generator(self._seed, self._name, self._epoch)
        return torch.randperm(self._count, generator=rng).tolist()
