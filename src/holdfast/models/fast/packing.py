"""Token sequences laid end to end, with the indices that attention needs to see them as rows.

Shapes: R rows, S tokens of all rows, N positions that are read out, T longest row, Q most read-outs of a row.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import torch
from torch import Tensor

# A group of this many rows ends when the next row would make its shortest less than this share of its longest.
GROUP_ROWS = 8
GROUP_SHARE = 0.75


@dataclass(frozen=True)
class Packed:
    """Rows without padding. Row r is read out at its last `counts[r]` positions, all rows in their order."""

    ids_S: Tensor
    lengths: tuple[int, ...]
    counts: tuple[int, ...]
    # What attention made of these rows, kept for the next model that reads them.
    kept: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], counts: Sequence[int], device: torch.device | str = "cpu") -> Packed:
        ids_S = torch.tensor(list(chain.from_iterable(rows)), dtype=torch.long, device=device)
        return cls(ids_S, tuple(len(row) for row in rows), tuple(counts))

    @property
    def tokens(self) -> int:
        return int(self.ids_S.numel())

    @cached_property
    def lengths_R(self) -> Tensor:
        return torch.tensor(self.lengths, device=self.ids_S.device)

    @cached_property
    def starts_R(self) -> Tensor:
        return self.lengths_R.cumsum(0) - self.lengths_R

    @cached_property
    def positions_S(self) -> Tensor:
        """Each token's place in its own row."""
        within = self.starts_R.repeat_interleave(self.lengths_R)
        return torch.arange(self.tokens, device=self.ids_S.device) - within

    @cached_property
    def groups(self) -> list[slice]:
        """Neighbouring rows of like length, which attention pads to one width."""
        starts = [0]
        longest = shortest = self.lengths[0]
        for row, length in enumerate(self.lengths):
            longest, shortest = max(longest, length), min(shortest, length)
            if row - starts[-1] >= GROUP_ROWS and shortest < GROUP_SHARE * longest:
                starts.append(row)
                longest = shortest = length
        return [slice(a, b) for a, b in pairwise([*starts, len(self.lengths)])]

    @cached_property
    def everything(self) -> list[Reading]:
        """Every position asks, group by group."""
        return [
            Reading.of(self.lengths_R[g], self.lengths_R[g], self.starts_R[g], self.starts_R[g]) for g in self.groups
        ]

    @cached_property
    def wanted(self) -> list[Reading]:
        """Only the positions that are read out ask, group by group; the last layer needs no more."""
        counts_R = torch.tensor(self.counts, device=self.ids_S.device)
        first_R = counts_R.cumsum(0) - counts_R
        return [Reading.of(self.lengths_R[g], counts_R[g], self.starts_R[g], first_R[g]) for g in self.groups]

    @cached_property
    def read_out_N(self) -> Tensor:
        """The places of the read-outs among all tokens."""
        return torch.cat([reading.query_N for reading in self.wanted])


@dataclass(frozen=True)
class Reading:
    """Which positions of some rows ask (queries) and which answer (keys), in the packed order and as padded rows.

    `query_N` are the asking tokens' places among the S tokens. The padded forms hold, for row r and column c, the
    place of its c-th query among all N, of its c-th key among all S; padding repeats the row's first, unseen by any
    real query because rows are padded on the right and attention looks back only. `asking_N`, `padding_P` and
    `answering_S` are the flat places of real queries, of padding and of real keys in the padded forms.
    """

    query_N: Tensor
    query_RQ: Tensor
    key_RT: Tensor
    asking_N: Tensor
    padding_P: Tensor
    answering_S: Tensor
    visible_RQT: Tensor | None

    @classmethod
    def of(cls, lengths_R: Tensor, counts_R: Tensor, starts_R: Tensor, first_R: Tensor) -> Reading:
        """Rows of `lengths` from `starts` among the tokens, whose last `counts` ask, from `first` among the queries."""
        device = lengths_R.device
        width, asked = int(lengths_R.max()), int(counts_R.max())
        column_T, column_Q = torch.arange(width, device=device), torch.arange(asked, device=device)
        real_RT = column_T[None] < lengths_R[:, None]
        real_RQ = column_Q[None] < counts_R[:, None]
        # The c-th query of a row stands at position length - count + c of it.
        place_RQ = (lengths_R - counts_R)[:, None] + column_Q[None]
        same = bool((counts_R == lengths_R).all())
        return cls(
            query_N=(starts_R[:, None] + place_RQ)[real_RQ],
            query_RQ=first_R[:, None] + torch.where(real_RQ, column_Q[None], 0),
            key_RT=starts_R[:, None] + torch.where(real_RT, column_T[None], 0),
            asking_N=real_RQ.flatten().nonzero().squeeze(-1),
            padding_P=(~real_RQ).flatten().nonzero().squeeze(-1),
            answering_S=real_RT.flatten().nonzero().squeeze(-1),
            # Where every position asks, one triangle serves all rows.
            visible_RQT=None if same else column_T[None, None] <= place_RQ[:, :, None],
        )
