"""Token sequences laid end to end, with the indices that attention needs to see them as rows.

Shapes: R rows, S tokens of all rows, N positions that are read out, T longest row, Q most read-outs of a row.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, zip_longest
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packed:
    """Rows without padding. Row r is read out at its last `counts[r]` positions, all rows in their order.

    With `places` it is read out at those of its positions, of which there are as many.
    """

    ids_S: Tensor
    lengths: tuple[int, ...]
    counts: tuple[int, ...]
    places: Sequence[Sequence[int]] | None = None
    # What attention made of these rows, kept for the next model that reads them.
    kept: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(
        cls,
        rows: Sequence[Sequence[int]],
        counts: Sequence[int],
        device: torch.device | str = "cpu",
        places: Sequence[Sequence[int]] | None = None,
    ) -> Packed:
        ids_S = torch.tensor(list(chain.from_iterable(rows)), dtype=torch.long, device=device)
        return cls(ids_S, tuple(len(row) for row in rows), tuple(counts), places)

    def chunks(self, tokens: int) -> list[Packed]:
        """The same rows in pieces of at most so many tokens (a longer row goes alone), kept for the next model."""
        kept = self.kept.get(tokens)
        if kept is None:
            kept = self.kept[tokens] = self._cut(tokens) if self.tokens > tokens else [self]
        return kept

    def _cut(self, tokens: int) -> list[Packed]:
        # Pieces of about the same size: a small last one would be as much work to start as the others.
        share = self.tokens / -(-self.tokens // tokens)
        pieces: list[Packed] = []
        first = start = done = 0
        for row, length in enumerate(self.lengths):
            if row > first and (done + length - start > tokens or done >= share * (len(pieces) + 1)):
                pieces.append(self._rows(slice(first, row), slice(start, done)))
                first, start = row, done
            done += length
        return [*pieces, self._rows(slice(first, None), slice(start, None))]

    def _rows(self, rows: slice, tokens: slice) -> Packed:
        places = None if self.places is None else self.places[rows]
        return Packed(self.ids_S[tokens], self.lengths[rows], self.counts[rows], places)

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
    def everything(self) -> Reading:
        """Every position asks."""
        return Reading.of(self.lengths_R, self.lengths_R, self.starts_R)

    @cached_property
    def wanted(self) -> Reading:
        """Only the positions that are read out ask; the last layer needs no more."""
        counts_R = torch.tensor(self.counts, device=self.ids_S.device)
        places_RQ = None if self.places is None else self._tensor(list(zip_longest(*self.places, fillvalue=0))).t()
        return Reading.of(self.lengths_R, counts_R, self.starts_R, places_RQ)

    def _tensor(self, values: list[tuple[int, ...]]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=self.ids_S.device).view(-1, len(self.lengths))


@dataclass(frozen=True)
class Reading:
    """Which positions ask (queries) and which answer (keys), in the packed order and as padded rows.

    `query_N` are the asking tokens' places among the S tokens. The padded forms hold, for row r and column c, the
    place of its c-th query among the N, of its c-th key among the S; padding repeats the row's first, unseen by any
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
    def of(cls, lengths_R: Tensor, counts_R: Tensor, starts_R: Tensor, place_RQ: Tensor | None = None) -> Reading:
        device = lengths_R.device
        width, asked = int(lengths_R.max()), int(counts_R.max())
        column_T, column_Q = torch.arange(width, device=device), torch.arange(asked, device=device)
        real_RT = column_T[None] < lengths_R[:, None]
        real_RQ = column_Q[None] < counts_R[:, None]
        key_RT = starts_R[:, None] + torch.where(real_RT, column_T[None], 0)
        first_R = counts_R.cumsum(0) - counts_R
        query_RQ = first_R[:, None] + torch.where(real_RQ, column_Q[None], 0)
        if place_RQ is None:
            # The c-th query of a row stands at position length - count + c of it.
            place_RQ = (lengths_R - counts_R)[:, None] + column_Q[None]
        query_N = (starts_R[:, None] + place_RQ)[real_RQ]
        same = bool((counts_R == lengths_R).all())
        return cls(
            query_N=query_N,
            query_RQ=query_RQ,
            key_RT=key_RT,
            asking_N=real_RQ.flatten().nonzero().squeeze(-1),
            padding_P=(~real_RQ).flatten().nonzero().squeeze(-1),
            answering_S=real_RT.flatten().nonzero().squeeze(-1),
            # Where every position asks, one triangle serves all rows.
            visible_RQT=None if same else column_T[None, None] <= place_RQ[:, :, None],
        )
