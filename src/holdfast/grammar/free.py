"""No grammar, for a prompt whose row says so among others that have one: every token of the vocabulary may come."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.grammar.walk import OffGrammar


@dataclass(frozen=True)
class Free:
    """Says nothing."""

    size: int
    end: int
    room: int

    def begin(self) -> FreeWalk:
        """An answer of which nothing is spelt yet."""
        return FreeWalk(self)


class FreeWalk:
    """An answer without a grammar."""

    def __init__(self, free: Free) -> None:
        self._free, self._left = free, free.room
        self._all = torch.ones(free.size, dtype=torch.bool)

    def allowed(self) -> Tensor:
        return self._all

    def forced(self) -> list[int]:
        return []

    def take(self, token: int) -> None:
        if not self._left or not 0 <= token < self._free.size:
            raise OffGrammar(f"The token {token} cannot follow.")
        self._left = 0 if token == self._free.end else self._left - 1
