"""Ragged token sequences, and how they become padded micro-batches with as little padding as possible.

Shapes: B rows, T tokens, N response tokens of a batch laid end to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# A bucket of this many rows ends when the next row is shorter than this share of its longest.
BUCKET_ROWS = 8
BUCKET_SHARE = 0.75


@dataclass(frozen=True)
class MicroBatch:
    """Rows of similar length, padded on the right to the longest of them.

    Models are causal, so padding on the right needs no attention mask: no real token can see it.
    `row_N`, `column_N` point at the positions whose outputs predict the response tokens `target_N`, row by row.
    """

    rows: list[int]
    input_ids_BT: Tensor
    row_N: Tensor
    column_N: Tensor
    target_N: Tensor
    last_B: Tensor

    @property
    def tokens(self) -> int:
        """Response tokens in this micro-batch."""
        return int(self.target_N.numel())


def micro_batches(
    prompts: Sequence[Sequence[int]],
    responses: Sequence[Sequence[int]],
    rows: Sequence[int],
    pad_id: int,
    max_tokens: int,
    device: torch.device | str = "cpu",
) -> list[MicroBatch]:
    """Rows of like length together, rows x longest within `max_tokens` (a longer single row goes alone)."""
    groups = group_by_length(rows, [len(p) + len(r) for p, r in zip(prompts, responses, strict=True)], max_tokens)
    return [pad_rows(prompts, responses, group, pad_id, device) for group in groups]


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


def pad_rows(
    prompts: Sequence[Sequence[int]],
    responses: Sequence[Sequence[int]],
    rows: list[int],
    pad_id: int,
    device: torch.device | str,
) -> MicroBatch:
    """One micro-batch of the given rows, in their order."""
    width = max(len(prompts[i]) + len(responses[i]) for i in rows)
    ids: list[list[int]] = []
    row: list[int] = []
    column: list[int] = []
    target: list[int] = []
    last: list[int] = []
    for b, i in enumerate(rows):
        p, r = prompts[i], responses[i]
        ids.append([*p, *r, *([pad_id] * (width - len(p) - len(r)))])
        row.extend([b] * len(r))
        column.extend(range(len(p) - 1, len(p) + len(r) - 1))
        target.extend(r)
        last.append(len(p) + len(r) - 1)

    def tensor(values: list[int] | list[list[int]]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=device)

    return MicroBatch(
        rows=rows,
        input_ids_BT=tensor(ids),
        row_N=tensor(row),
        column_N=tensor(column),
        target_N=tensor(target),
        last_B=tensor(last),
    )


def lay_out(values_N: Tensor, batch: MicroBatch, out_BT: Tensor) -> None:
    """Write per-token values of a micro-batch into the rows of a padded (all rows x longest response) tensor."""
    lengths = torch.bincount(batch.row_N, minlength=len(batch.rows)).tolist()
    start = 0
    for row, count in zip(batch.rows, lengths, strict=True):
        out_BT[row, :count] = values_N[start : start + count].to(out_BT)
        start += count


def pick_out(values_BT: Tensor, batch: MicroBatch) -> Tensor:
    """The inverse of `lay_out`: the micro-batch's response tokens from a padded tensor, end to end."""
    lengths = torch.bincount(batch.row_N, minlength=len(batch.rows)).tolist()
    return torch.cat([values_BT[row, :count] for row, count in zip(batch.rows, lengths, strict=True)])
