"""Runs of neighbouring tokens in a batch of answers, all answers at once.

Shapes: N tokens of all answers laid end to end, G runs of n tokens laid end to end, B answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Grams:
    """Runs of `n` tokens: equal runs have equal ids from 0 to `kinds` - 1, in whichever answer they stand."""

    n: int
    ids_G: Tensor
    rows_G: Tensor
    starts_G: Tensor
    kinds: int
    answers: int

    @property
    def per_answer_B(self) -> Tensor:
        """How many runs each answer has."""
        return torch.bincount(self.rows_G, minlength=self.answers)

    def repeated(self) -> float | None:
        """Share of an answer's runs that stood in it before: 1 - distinct / all, mean over answers."""
        distinct = torch.unique(self.rows_G * self.kinds + self.ids_G)
        distinct_B = torch.bincount(distinct // max(1, self.kinds), minlength=self.answers)
        return mean_share(self.per_answer_B - distinct_B, self.per_answer_B)


def mean_share(part_B: Tensor, whole_B: Tensor) -> float | None:
    """part / whole, mean over the answers that have anything; None where none has."""
    some_B = whole_B > 0
    if not bool(some_B.any()):
        return None
    return float((part_B[some_B].double() / whole_B[some_B]).mean())


def lay_flat(answers: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """tokens_N, and rows_N which says whose they are."""
    tokens_N = torch.tensor(list(chain.from_iterable(answers)), dtype=torch.int64)
    lengths_B = torch.tensor([len(answer) for answer in answers], dtype=torch.int64)
    return tokens_N, torch.repeat_interleave(torch.arange(len(answers)), lengths_B)


def single_tokens(tokens_N: Tensor, rows_N: Tensor, answers: int) -> Grams:
    """Runs of one token."""
    ids_N, kinds = _numbered(tokens_N)
    return Grams(1, ids_N, rows_N, torch.arange(len(tokens_N)), kinds, answers)


def joined(first: Grams, second: Grams) -> Grams:
    """Runs made of one of `first` and one of `second` right behind it. Exact: equal ids mean equal tokens."""
    if len(second.starts_G) == 0:
        none_G = torch.zeros(0, dtype=torch.int64)
        return Grams(first.n + second.n, none_G, none_G, none_G, 0, first.answers)
    at = torch.full((_end(first, second),), -1, dtype=torch.int64)
    at[second.starts_G] = torch.arange(len(second.starts_G))
    behind_G = at[first.starts_G + first.n]
    together_G = (behind_G >= 0) & (second.rows_G[behind_G.clamp(min=0)] == first.rows_G)
    ids_G = first.ids_G[together_G] * second.kinds + second.ids_G[behind_G[together_G]]
    ids_G, kinds = _numbered(ids_G)
    starts_G, rows_G = first.starts_G[together_G], first.rows_G[together_G]
    return Grams(first.n + second.n, ids_G, rows_G, starts_G, kinds, first.answers)


def _end(first: Grams, second: Grams) -> int:
    """One place past any that is looked at."""
    last_first = int(first.starts_G[-1]) + first.n if len(first.starts_G) else 0
    return max(last_first, int(second.starts_G[-1])) + 1


def _numbered(codes_G: Tensor) -> tuple[Tensor, int]:
    """The same codes as numbers from 0 on, so that the next pairing stays within 64 bits."""
    kinds, ids_G = torch.unique(codes_G, return_inverse=True)
    return ids_G, len(kinds)
