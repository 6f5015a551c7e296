"""Rows decoded under grammars: what may not come is left out of a draw, what has to come is not drawn.

    prompt and what has to come first -> logits of what may come -> draw -> what has to come then -> ...

Where the sets are small, as most grammars' are, only what they allow is looked at. They are known before the pass that
they are for, since what has to come is read in the same pass; computing them beside it would gain nothing.

Shapes: A rows still going, D rows among them that draw, V vocabulary of the tokenizer, W that of the model (at least
V), X that of the tokenizer and one more, K most tokens that a row may draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from holdfast.grammar.walk import Grammar, Walk, allowed_rows, follow, look_ahead
from holdfast.models.token_sets import leave_out
from holdfast.rollout.choice import Sampling, choose
from holdfast.rollout.decoding import Decoding
from holdfast.rollout.drawn import RowsDrawn
from holdfast.rollout.support import left_out

# A row's tokens are looked at alone where all rows may draw less than this share of the vocabulary.
SMALL = 0.25


@dataclass
class Spelt:
    """One row's answer so far, and of that what the model has yet to read."""

    row: int
    walk: Walk | None
    longest: int
    eos_id: int
    tokens: list[int] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)
    ended: bool = False
    over: bool = False

    def take(self, token: int) -> None:
        """Go on with a token."""
        if self.walk is not None:
            self.walk.take(token)
        self.tokens.append(token)
        self.unread.append(token)
        self.ended = token == self.eos_id
        self.over = self.ended or len(self.tokens) == self.longest

    def follow(self) -> None:
        """Go on as long as there is one way."""
        while self.walk is not None and not self.over:
            forced = follow(self.walk, self.longest - len(self.tokens))
            if not forced:
                break
            self.tokens += forced
            self.unread += forced
            self.ended = forced[-1] == self.eos_id
            self.over = self.ended or len(self.tokens) == self.longest


def decode_under(
    grammars: Sequence[Grammar | None],
    rows: list[int],
    prompts: list[list[int]],
    decoding_of: Callable[[list[list[int]]], Decoding],
    drawn: RowsDrawn,
    sampling: Sampling,
    eos_id: int,
) -> None:
    """Decode these rows, whose grammars and prompts are given, until every one has ended or is full."""
    longest = sampling.max_new_tokens
    everyone = [
        Spelt(row, None if grammar is None else grammar.begin(), longest, eos_id)
        for row, grammar in zip(rows, grammars, strict=True)
    ]
    for one in everyone:
        one.follow()
    places = [place for place, one in enumerate(everyone) if not one.over]
    going = [everyone[place] for place in places]
    if going:
        decoding = decoding_of([prompts[place] + everyone[place].tokens for place in places])
        for one in going:
            one.unread.clear()
        while going:
            going = _step(going, decoding, drawn, sampling)
    for one in everyone:
        drawn.tokens_BT[one.row, : len(one.tokens)] = torch.tensor(one.tokens, device=drawn.tokens_BT.device)
        drawn.lengths[one.row], drawn.finished[one.row] = len(one.tokens), one.ended


def _step(going: list[Spelt], decoding: Decoding, drawn: RowsDrawn, sampling: Sampling) -> list[Spelt]:
    """One more pass; rows that have read all their tokens draw. Returns those that go on, in the decoding's order."""
    places = [place for place, one in enumerate(going) if not one.unread]
    logits_AW, values_A = decoding.forward()
    if places:
        if len(places) < len(going):
            logits_AW, values_A = logits_AW[places], None if values_A is None else values_A[places]
        _draw([going[place] for place in places], logits_AW, values_A, drawn, sampling)
    staying = [place for place, one in enumerate(going) if not one.over]
    if not staying:
        return []
    if len(staying) < len(going):
        going = [going[place] for place in decoding.keep(staying)]
    at_once = sampling.max_new_tokens if decoding.several else 1
    decoding.feed_several([one.unread[:at_once] for one in going])
    for one in going:
        del one.unread[:at_once]
    return going


def _draw(
    drawing: list[Spelt], logits_DW: Tensor, values_D: Tensor | None, drawn: RowsDrawn, sampling: Sampling
) -> None:
    """A token for each row, and what has to come after it."""
    row_D, at_D = torch.tensor([[one.row for one in drawing], [len(one.tokens) for one in drawing]])
    at = row_D.to(logits_DW.device), at_D.to(logits_DW.device)
    allowed = Allowed.of([one.walk for one in drawing])
    picked_D, logprob_D, kept_DW = allowed.choose(logits_DW, drawn.uniform_BT[at], sampling)
    free_D = allowed.free_D
    drawn.free_BT[row_D, at_D] = free_D
    drawn.logprobs_BT[at] = logprob_D
    if values_D is not None:
        drawn.values_BT[at] = values_D
    if kept_DW is not None:
        drawn.keep(row_D[free_D], at_D[free_D], kept_DW.cpu()[free_D])
    for one, token in zip(drawing, picked_D.tolist(), strict=True):
        one.take(token)
    look_ahead([one.walk for one in drawing if one.walk is not None and not one.over])
    for one in drawing:
        one.follow()


@dataclass(frozen=True)
class Allowed:
    """What some rows may draw: `allowed_UV` for those `under` a grammar, anything for the others."""

    rows: int
    under: list[int]
    allowed_UV: Tensor
    places_I: Tensor  # of everything that is allowed, row after row
    counts_U: Tensor

    @classmethod
    def of(cls, walks: Sequence[Walk | None]) -> Allowed:
        under = [row for row, walk in enumerate(walks) if walk is not None]
        allowed_UV = allowed_rows([walk for walk in walks if walk is not None]) if under else torch.zeros(0, 1).bool()
        flat_I = np.flatnonzero(allowed_UV.numpy())
        counts_U = np.bincount(flat_I // allowed_UV.shape[1], minlength=len(under))
        return cls(len(walks), under, allowed_UV, torch.from_numpy(flat_I), torch.from_numpy(counts_U))

    @property
    def free_D(self) -> Tensor:
        """Which rows may draw more than one token."""
        free_D = torch.ones(self.rows, dtype=torch.bool)
        free_D[self.under] = self.counts_U > 1
        return free_D

    def choose(self, logits_DW: Tensor, uniform_D: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor, Tensor | None]:
        """As `choose` does, of what is allowed."""
        small = len(self.under) == self.rows and int(self.counts_U.max()) < SMALL * self.allowed_UV.shape[1]
        if not small:
            if self.under:
                out_DX = torch.zeros(self.rows, self.allowed_UV.shape[1] + 1, dtype=torch.bool)
                out_DX[self.under] = left_out(self.allowed_UV)
                logits_DW = leave_out(logits_DW, out_DX.to(logits_DW.device))
            return choose(logits_DW, uniform_D, sampling)
        ids_DK, real_DK = (part.to(logits_DW.device) for part in self._ids())
        logits_DK = logits_DW.gather(1, ids_DK).masked_fill_(~real_DK, float("-inf"))
        picked_D, logprob_D, kept_DK = choose(logits_DK, uniform_D, sampling)
        kept_DW = None
        if kept_DK is not None:
            kept_DW = torch.zeros(logits_DW.shape, dtype=torch.bool, device=logits_DW.device)
            kept_DK &= real_DK
            kept_DW[kept_DK.nonzero()[:, 0], ids_DK[kept_DK]] = True
        return ids_DK.gather(1, picked_D[:, None])[:, 0], logprob_D, kept_DW

    def _ids(self) -> tuple[Tensor, Tensor]:
        """ids_DK of what each row may draw, and which of them are real; the rest is padding."""
        real_DK = torch.arange(int(self.counts_U.max())) < self.counts_U[:, None]
        ids_DK = torch.zeros(real_DK.shape, dtype=torch.long)
        ids_DK[real_DK] = self.places_I % self.allowed_UV.shape[1]
        return ids_DK, real_DK
