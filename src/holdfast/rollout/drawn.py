"""What has been drawn of all rows so far, wherever each of them is decoded.

Shapes: B rows, T tokens, N free tokens of all rows end to end, A rows that draw, V vocabulary, P sets kept as bits,
I ids of all other sets end to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from holdfast.models.token_sets import AS_BITS, KeptSets
from holdfast.parallel.processes import PROCESSES


@dataclass(frozen=True)
class RowsDrawn:
    """Where the tokens of all rows go, and the uniform numbers they are drawn with.

    `free_BT` is for rows under grammars: True where more than one token was possible. `parts` are what top-k and top-p
    have kept, step by step, with the row and the place of each set.
    """

    uniform_BT: Tensor
    tokens_BT: Tensor
    logprobs_BT: Tensor
    values_BT: Tensor
    free_BT: Tensor
    lengths: list[int]
    finished: list[bool]
    parts: list[tuple[Tensor, Tensor, KeptSets]] = field(default_factory=list)

    @classmethod
    def nothing(cls, uniform_BT: Tensor, pad_id: int, device: torch.device) -> RowsDrawn:
        """Before the first draw: every row is as long as it may be."""
        shape = uniform_BT.shape
        return cls(
            uniform_BT=uniform_BT.to(device),
            tokens_BT=torch.full(shape, pad_id, device=device),
            logprobs_BT=torch.zeros(shape, device=device),
            values_BT=torch.zeros(shape, device=device),
            free_BT=torch.zeros(shape, dtype=torch.bool),
            lengths=[shape[1]] * shape[0],
            finished=[False] * shape[0],
        )

    def keep(self, row_A: Tensor, at_A: Tensor, kept_AV: Tensor) -> None:
        """Note what top-k and top-p kept where these rows drew."""
        if len(row_A):
            self.parts.append((row_A, at_A, KeptSets.of(kept_AV)))

    @property
    def kept(self) -> KeptSets | None:
        """What they kept at all free tokens, row by row."""
        return in_order(self.parts, self.uniform_BT.shape[1]) if self.parts else None

    def gathered(self, mine: Sequence[int]) -> RowsDrawn:
        """The rows of all processes: each adds its own to nothing of the others'. Sums with zeros are exact."""
        own_B = torch.zeros(len(self.lengths), dtype=torch.bool)
        own_B[list(mine)] = True
        ends_B2 = (torch.tensor([self.lengths, self.finished]).t() * own_B[:, None]).contiguous()
        # The drawing itself has left the other rows at zero, but for the padding.
        tokens_BT = self.tokens_BT * own_B[:, None].to(self.tokens_BT.device)
        free_BT = self.free_BT.int()
        PROCESSES.add(tokens_BT, self.logprobs_BT, self.values_BT, ends_B2, free_BT)
        lengths, finished = ends_B2.t().tolist()
        return replace(
            self, tokens_BT=tokens_BT, free_BT=free_BT.bool(), lengths=lengths, finished=list(map(bool, finished))
        )


def in_order(parts: Sequence[tuple[Tensor, Tensor, KeptSets]], longest: int) -> KeptSets:
    """Sets with the row and the place of each, row by row."""
    row_N, at_N = torch.cat([row_A for row_A, _, _ in parts]), torch.cat([at_A for _, at_A, _ in parts])
    return KeptSets.joined([kept for _, _, kept in parts]).picked((row_N * longest + at_N).argsort())


def gathered_sets(kept: KeptSets | None, vocabulary: int, own_N: Tensor) -> KeptSets:
    """The sets of all processes at all free tokens; `own_N` says which of those are of this process."""
    sizes_N = torch.zeros(len(own_N), dtype=torch.int32)
    if kept is not None:
        sizes_N[own_N] = kept.sizes_N
    PROCESSES.add(sizes_N)
    counts_N, as_bits_N = sizes_N.clamp(min=0).long(), sizes_N == AS_BITS
    blank = KeptSets.of(torch.zeros(0, vocabulary, dtype=torch.bool))
    ids_I = torch.zeros(int(counts_N.sum()), dtype=torch.int32)
    bits_PE = torch.zeros(int(as_bits_N.sum()), blank.bits_PE.shape[1], dtype=torch.uint8)
    if kept is not None:
        ids_I[own_N.repeat_interleave(counts_N)] = kept.ids_I.int()
        bits_PE[own_N[as_bits_N]] = kept.bits_PE
    PROCESSES.add(ids_I, bits_PE)
    return KeptSets(vocabulary, sizes_N, ids_I.to(blank.ids_I.dtype), bits_PE)
