"""Sets of tokens: those that could have been drawn at each of some positions, and what they leave of logits.

A grammar's sets come again and again, so each different one is there once. What top-k and top-p keep is another set at
every position, and is kept as token ids or as one bit for each token, whichever takes less memory.

Shapes: N positions, V vocabulary, W tokens that a model can say (at least V), X the vocabulary and one more, U
different sets, P sets kept as bits, E bytes of one of those, I ids of all other sets end to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# Up to this vocabulary an id fits two bytes.
SHORT_IDS = 1 << 16
# The size of a set that is kept as bits.
AS_BITS = -1


@dataclass(frozen=True)
class Interned:
    """A grammar's sets: the tokens that each different one leaves out, and which of them is a position's.

    The last column is for all tokens that the tokenizer does not know.
    """

    out_UX: Tensor
    which_N: Tensor

    def picked(self, places_N: Tensor) -> Interned:
        return Interned(self.out_UX, self.which_N[places_N])

    def restrict(self, scores_NW: Tensor, rows: slice = slice(None)) -> Tensor:
        """-inf for what some positions' sets leave out, in place."""
        return leave_out(scores_NW, self.out_UX[self.which_N[rows]].to(scores_NW.device))


@dataclass(frozen=True)
class KeptSets:
    """What top-k and top-p keep. `sizes_N` counts a set's ids; where it is `AS_BITS` the set is a row of `bits_PE`."""

    vocabulary: int
    sizes_N: Tensor
    ids_I: Tensor
    bits_PE: Tensor

    @classmethod
    def of(cls, kept_NV: Tensor) -> KeptSets:
        """Each position's set in the form that takes less memory."""
        kept_NV = kept_NV.cpu()
        vocabulary = kept_NV.shape[1]
        kind = _id_kind(vocabulary)
        sizes_N = kept_NV.sum(1, dtype=torch.int32)
        as_bits_N = sizes_N * kind.itemsize > _bytes_of(vocabulary)
        ids_I = kept_NV[~as_bits_N].nonzero()[:, 1].to(kind)
        return cls(vocabulary, sizes_N.masked_fill(as_bits_N, AS_BITS), ids_I, _packed(kept_NV[as_bits_N]))

    @classmethod
    def joined(cls, parts: Sequence[KeptSets]) -> KeptSets:
        """The positions of all parts, end to end."""
        columns = zip(*((part.sizes_N, part.ids_I, part.bits_PE) for part in parts), strict=True)
        return cls(parts[0].vocabulary, *(torch.cat(column) for column in columns))

    @property
    def bytes(self) -> int:
        """What it takes of memory."""
        return sum(tensor.nbytes for tensor in (self.sizes_N, self.ids_I, self.bits_PE))

    def picked(self, places_N: Tensor) -> KeptSets:
        """Some of the positions, in the order of `places_N`."""
        sizes_N = self.sizes_N[places_N]
        ids_N, bits_N = self._starts
        counts_N = sizes_N.clamp(min=0).long()
        # The i-th id of a set stands i places behind its first.
        behind_I = torch.arange(int(counts_N.sum())) - (counts_N.cumsum(0) - counts_N).repeat_interleave(counts_N)
        ids_I = self.ids_I[ids_N[places_N].repeat_interleave(counts_N) + behind_I]
        return KeptSets(self.vocabulary, sizes_N, ids_I, self.bits_PE[bits_N[places_N][sizes_N == AS_BITS]])

    def kept(self) -> Tensor:
        """kept_NV of all positions."""
        as_bits_N = self.sizes_N == AS_BITS
        kept_NV = torch.zeros(len(self.sizes_N), self.vocabulary, dtype=torch.bool)
        counts_N = self.sizes_N.clamp(min=0).long()
        ids_I = self.ids_I.long() & (SHORT_IDS - 1) if self.ids_I.dtype == torch.int16 else self.ids_I.long()
        kept_NV[torch.arange(len(counts_N)).repeat_interleave(counts_N), ids_I] = True
        kept_NV[as_bits_N] = _unpacked(self.bits_PE, self.vocabulary)
        return kept_NV

    def restrict(self, scores_NV: Tensor, rows: slice = slice(None)) -> Tensor:
        """-inf for what some positions' sets leave out, in place."""
        kept_NV = self.picked(torch.arange(len(self.sizes_N))[rows]).kept()
        return scores_NV.masked_fill_(~kept_NV.to(scores_NV.device), float("-inf"))

    @property
    def _starts(self) -> tuple[Tensor, Tensor]:
        """Where each position's ids begin, and which row of bits is its own."""
        counts_N, as_bits_N = self.sizes_N.clamp(min=0).long(), (self.sizes_N == AS_BITS).long()
        return counts_N.cumsum(0) - counts_N, as_bits_N.cumsum(0) - as_bits_N


@dataclass(frozen=True)
class TokenSets:
    """The sets of N positions: those that a grammar allows, and what top-k and top-p keep of them."""

    grammar: Interned | None = None
    kept: KeptSets | None = None

    def picked(self, places_N: Tensor) -> TokenSets:
        """Some of the positions, in the order of `places_N`."""
        grammar, kept = self.grammar, self.kept
        return TokenSets(
            None if grammar is None else grammar.picked(places_N), None if kept is None else kept.picked(places_N)
        )

    def restrict(self, scores_NW: Tensor, truncated: bool, rows: slice = slice(None)) -> Tensor:
        """The scores of some positions, in place, with -inf for what could not be drawn.

        Without `truncated` only the grammar counts, and top-k and top-p leave everything.
        """
        for sets in (self.grammar, self.kept if truncated else None):
            if sets is not None:
                sets.restrict(scores_NW, rows)
        return scores_NW


def leave_out(scores_NW: Tensor, out_NX: Tensor) -> Tensor:
    """-inf for the tokens that are left out, in place; the last column is for those that no tokenizer knows."""
    known = out_NX.shape[1] - 1
    scores_NW[:, :known].masked_fill_(out_NX[:, :known], float("-inf"))
    if known < scores_NW.shape[1]:
        scores_NW[:, known:].masked_fill_(out_NX[:, known:], float("-inf"))
    return scores_NW


def _id_kind(vocabulary: int) -> torch.dtype:
    return torch.int16 if vocabulary <= SHORT_IDS else torch.int32


def _bytes_of(vocabulary: int) -> int:
    return -(-vocabulary // 8)


def _packed(kept_PV: Tensor) -> Tensor:
    """bits_PE: eight tokens in each byte."""
    size = _bytes_of(kept_PV.shape[1])
    padded_PE8 = torch.nn.functional.pad(kept_PV, (0, 8 * size - kept_PV.shape[1])).view(len(kept_PV), size, 8)
    weights = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8)
    return (padded_PE8 * weights).sum(-1, dtype=torch.uint8)


def _unpacked(bits_PE: Tensor, vocabulary: int) -> Tensor:
    weights = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8)
    return (bits_PE[..., None] & weights).bool().flatten(1)[:, :vocabulary]
