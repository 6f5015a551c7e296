"""Ragged token sequences as micro-batches: packed end to end for the fast path, padded rows for the plain one.

Shapes: B rows, T tokens, N response tokens of a batch laid end to end (those that were free, where that is known), M
tokens that a reward is read from, D hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Protocol

import torch
from torch import Tensor

from holdfast.models.fast.packing import Packed
from holdfast.models.token_sets import TokenSets
from holdfast.parallel.processes import PROCESSES

# A bucket of this many rows ends when the next row is shorter than this share of its longest.
BUCKET_ROWS = 8
BUCKET_SHARE = 0.75


@dataclass(frozen=True)
class FreeTokens:
    """The response tokens of some rows that were drawn freely, by their places in each, and the sets they are from."""

    places: list[list[int]]
    sets: TokenSets


class SetsOfRows(Protocol):
    """Whatever knows which of the tokens of some rows were free, and the sets that they were drawn from."""

    def of(self, rows: Sequence[int]) -> FreeTokens: ...

    @property
    def places(self) -> Sequence[list[int]]:
        """Where each row's free tokens stand."""
        ...


@dataclass(frozen=True)
class MicroBatch:
    """Prompts with their responses. What a model wants to see of them is made when it is first asked for.

    Where sets of tokens are known, only what was drawn `free` is a response token: the rest is read like the prompt.
    """

    rows: list[int]
    prompts: list[list[int]]
    responses: list[list[int]]
    pad_id: int
    device: torch.device | str
    free: FreeTokens | None = None

    @property
    def tokens(self) -> int:
        """Response tokens in this micro-batch."""
        return sum(self.counts)

    @cached_property
    def counts(self) -> list[int]:
        """Response tokens of each row."""
        return [len(r) for r in (self.responses if self.free is None else self.free.places)]

    @property
    def sets(self) -> TokenSets | None:
        """What each response token was drawn from; None where that is the whole vocabulary."""
        return None if self.free is None else self.free.sets

    @cached_property
    def target_N(self) -> Tensor:
        """The response tokens, row by row."""
        if self.free is None:
            return self._tensor(list(chain.from_iterable(self.responses)))
        picked = zip(self.responses, self.free.places, strict=True)
        return self._tensor([response[t] for response, places in picked for t in places])

    @cached_property
    def to_predict(self) -> Packed:
        """Packed, read out where response tokens are predicted. A row's last token predicts nothing and is left out."""
        rows = [[*p, *r[:-1]] for p, r in zip(self.prompts, self.responses, strict=True)]
        if self.free is None:
            return Packed.of(rows, self.counts, self.device)
        starts = [len(p) - 1 for p in self.prompts]
        places = [[s + t for t in own] for s, own in zip(starts, self.free.places, strict=True)]
        return Packed.of(rows, self.counts, self.device, places)

    @cached_property
    def to_score(self) -> Packed:
        """Packed whole, read out at the last token of each row."""
        rows = [[*p, *r] for p, r in zip(self.prompts, self.responses, strict=True)]
        return Packed.of(rows, [1] * len(rows), self.device)

    @cached_property
    def pooled(self) -> list[int]:
        """How many of each row's last tokens a mean is taken over: the response, or the prompt's last token."""
        return [max(1, len(r)) for r in self.responses]

    @cached_property
    def to_pool(self) -> Packed:
        """Packed whole, read out at every token of the response."""
        rows = [[*p, *r] for p, r in zip(self.prompts, self.responses, strict=True)]
        return Packed.of(rows, self.pooled, self.device)

    @cached_property
    def pooled_M(self) -> tuple[Tensor, Tensor]:
        """Row and column of each of those tokens among the padded rows."""
        ends = [len(p) + len(r) for p, r in zip(self.prompts, self.responses, strict=True)]
        columns = [c for end, n in zip(ends, self.pooled, strict=True) for c in range(end - n, end)]
        return self.pooled_row_M, self._tensor(columns)

    @cached_property
    def pooled_row_M(self) -> Tensor:
        return self._tensor([b for b, n in enumerate(self.pooled) for _ in range(n)])

    def mean_of(self, values_MD: Tensor) -> Tensor:
        """values_BD: the mean of each row's read-outs, which lie end to end."""
        sums_BD = values_MD.new_zeros(len(self.rows), values_MD.shape[1]).index_add(0, self.pooled_row_M, values_MD)
        return sums_BD / self._tensor(self.pooled).to(values_MD)[:, None]

    @cached_property
    def input_ids_BT(self) -> Tensor:
        """Rows padded on the right. Models are causal, so that needs no attention mask: no real token can see it."""
        rows = [[*p, *r] for p, r in zip(self.prompts, self.responses, strict=True)]
        width = max(len(row) for row in rows)
        return self._tensor([[*row, *[self.pad_id] * (width - len(row))] for row in rows])

    @cached_property
    def row_N(self) -> Tensor:
        """The row of the position that predicts each response token."""
        return self._tensor([b for b, count in enumerate(self.counts) for _ in range(count)])

    @cached_property
    def column_N(self) -> Tensor:
        """The column of that position."""
        starts = [len(p) - 1 for p in self.prompts]
        return self._tensor([s + t for s, places in zip(starts, self._places, strict=True) for t in places])

    @cached_property
    def last_B(self) -> Tensor:
        """The column of each row's last token."""
        return self._tensor([len(p) + len(r) - 1 for p, r in zip(self.prompts, self.responses, strict=True)])

    @cached_property
    def place_N(self) -> tuple[Tensor, Tensor]:
        """Row and column of each response token in a tensor of (all rows x longest response), on the CPU."""
        lengths = torch.tensor(self.counts)
        row_N = torch.tensor(self.rows).repeat_interleave(lengths)
        if self.free is not None:
            return row_N, torch.tensor(list(chain.from_iterable(self.free.places)), dtype=torch.long)
        starts = lengths.cumsum(0) - lengths
        return row_N, torch.arange(self.tokens) - starts.repeat_interleave(lengths)

    @property
    def _places(self) -> Sequence[Sequence[int]]:
        """The places of each row's response tokens in its response."""
        return [range(len(r)) for r in self.responses] if self.free is None else self.free.places

    def _tensor(self, values: list[int] | list[list[int]]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=self.device)


def micro_batches(
    prompts: Sequence[Sequence[int]],
    responses: Sequence[Sequence[int]],
    rows: Sequence[int],
    pad_id: int,
    max_tokens: int,
    device: torch.device | str = "cpu",
    pieces: int = 0,
    support: SetsOfRows | None = None,
) -> list[MicroBatch]:
    """Rows of like length together, within `max_tokens` (a longer single row goes alone).

    `pieces` 0 is for the plain path: rows x longest count, and a bucket ends where padding would cost too much. From 1
    on it is for packed rows: true tokens count, and there are at least that many batches of about the same work.
    `support` has the sets of tokens that the responses were drawn from, by the same rows; a row of which nothing was
    free has nothing to be read out, and is in no batch.
    """
    if support is not None:
        rows = [row for row in rows if support.places[row]]
    lengths = [len(p) + len(r) for p, r in zip(prompts, responses, strict=True)]
    if pieces > 0:
        groups = group_by_work(rows, lengths, max_tokens, pieces * PROCESSES.world)
    else:
        groups = deal_by_length(rows, lengths, max_tokens, PROCESSES.world)
    return [take_rows(prompts, responses, group, pad_id, device, support) for group in groups]


def group_by_length(rows: Sequence[int], lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Split `rows`, longest first, into groups whose size times longest row stays within `max_tokens`.

    A group of some size also ends where rows become much shorter than its longest: padding them would cost more than
    another pass.
    """
    groups: list[list[int]] = []
    for i in sorted(rows, key=lambda i: (-lengths[i], i)):
        # The first row of a group is its longest and sets the padded length.
        longest = lengths[groups[-1][0]] if groups else 0
        fits = groups and (len(groups[-1]) + 1) * longest <= max_tokens
        wasteful = groups and len(groups[-1]) >= BUCKET_ROWS and lengths[i] < BUCKET_SHARE * longest
        if fits and not wasteful:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def deal_by_length(rows: Sequence[int], lengths: Sequence[int], max_tokens: int, hands: int) -> list[list[int]]:
    """The same for several processes, each of which takes every n-th group: rows are dealt out before they are grouped,
    so that each has its share of long and short ones."""
    order = sorted(rows, key=lambda i: (-lengths[i], i))
    dealt = [group_by_length(order[hand::hands], lengths, max_tokens) for hand in range(hands)]
    return [groups[turn] for turn in range(max(map(len, dealt))) for groups in dealt if turn < len(groups)]


def group_by_work(rows: Sequence[int], lengths: Sequence[int], max_tokens: int, pieces: int) -> list[list[int]]:
    """Split `rows`, longest first, into a multiple of `pieces` groups (if there are rows enough) of like work.

    Rows of like length stay together, because attention sees a group as padded rows.
    """
    order = sorted(rows, key=lambda i: (-lengths[i], i))
    total = sum(lengths[i] for i in order)
    count = min(len(order), pieces * -(-total // (pieces * max_tokens)))
    groups: list[list[int]] = []
    done = taken = 0
    for i in order:
        # The next group begins when those before it have their share of the work, and when this one is full.
        full = groups and taken + lengths[i] > max_tokens
        if not groups or full or (len(groups) < count and done >= total * len(groups) / count):
            groups.append([])
            taken = 0
        groups[-1].append(i)
        done, taken = done + lengths[i], taken + lengths[i]
    return groups


def take_rows(
    prompts: Sequence[Sequence[int]],
    responses: Sequence[Sequence[int]],
    rows: Sequence[int],
    pad_id: int,
    device: torch.device | str,
    support: SetsOfRows | None = None,
) -> MicroBatch:
    """One micro-batch of the given rows, in their order."""
    taken = [list(prompts[i]) for i in rows], [list(responses[i]) for i in rows]
    return MicroBatch(list(rows), *taken, pad_id, device, None if support is None else support.of(rows))


def lay_out(values_N: Tensor, batch: MicroBatch, out_BT: Tensor) -> None:
    """Write per-token values of a micro-batch into the rows of a padded (all rows x longest response) tensor."""
    out_BT[batch.place_N] = values_N.to(out_BT)


def pick_out(values_BT: Tensor, batch: MicroBatch) -> Tensor:
    """The inverse of `lay_out`: the micro-batch's response tokens from a padded tensor, end to end."""
    return values_BT[batch.place_N]
