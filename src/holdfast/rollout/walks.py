"""Rows decoded under grammars: what may not come is left out of a draw, what has to come is not drawn.

    prompt and what has to come first -> logits, the sets computed meanwhile -> draw -> what has to come then -> ...

Shapes: A rows still going, D rows among them that draw, V vocabulary of the tokenizer, W that of the model (at least
V), X that of the tokenizer and one more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import torch
from torch import Tensor

from holdfast.grammar.walk import Grammar, Walk, allowed_rows
from holdfast.models.token_sets import leave_out
from holdfast.rollout.choice import Sampling, choose
from holdfast.rollout.decoding import Decoding
from holdfast.rollout.drawn import RowsDrawn
from holdfast.rollout.support import left_out


@dataclass
class Spelt:
    """One row's answer so far, and of that what the model has yet to read."""

    row: int
    walk: Walk | None
    longest: int
    eos_id: int
    tokens: list[int] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return bool(self.tokens) and self.tokens[-1] == self.eos_id

    @property
    def over(self) -> bool:
        return self.ended or len(self.tokens) == self.longest

    def take(self, token: int) -> None:
        """Go on with a token that was drawn, and with what has to come after it."""
        self._add(token)
        self.follow()

    def follow(self) -> None:
        """Go on as long as there is one way."""
        while self.walk is not None and not self.over and (forced := self.walk.forced()):
            for token in forced[: self.longest - len(self.tokens)]:
                self._add(token)

    def _add(self, token: int) -> None:
        if self.walk is not None:
            self.walk.take(token)
        self.tokens.append(token)
        self.unread.append(token)


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
        with ThreadPoolExecutor(1) as beside:
            while going:
                going = _step(going, decoding, drawn, sampling, beside)
    for one in everyone:
        drawn.tokens_BT[one.row, : len(one.tokens)] = torch.tensor(one.tokens, device=drawn.tokens_BT.device)
        drawn.lengths[one.row], drawn.finished[one.row] = len(one.tokens), one.ended


def _step(
    going: list[Spelt], decoding: Decoding, drawn: RowsDrawn, sampling: Sampling, beside: ThreadPoolExecutor
) -> list[Spelt]:
    """One more pass; rows that have read all their tokens draw. Returns those that go on, in the decoding's order."""
    places = [place for place, one in enumerate(going) if not one.unread]
    drawing = [going[place] for place in places]
    sets = beside.submit(sets_of, [one.walk for one in drawing])
    logits_AW, values_A = decoding.forward()
    allowed = sets.result()
    if drawing:
        if len(places) < len(going):
            logits_AW, values_A = logits_AW[places], None if values_A is None else values_A[places]
        _draw(drawing, logits_AW, values_A, allowed, drawn, sampling)
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
    drawing: list[Spelt],
    logits_DW: Tensor,
    values_D: Tensor | None,
    allowed: tuple[Tensor, Tensor] | None,
    drawn: RowsDrawn,
    sampling: Sampling,
) -> None:
    """A token for each row, and what has to come after it."""
    at = [one.row for one in drawing], [len(one.tokens) for one in drawing]
    free_D = torch.ones(len(drawing), dtype=torch.bool)
    if allowed is not None:
        out_DX, free_D = allowed
        logits_DW = leave_out(logits_DW, out_DX.to(logits_DW.device))
    picked_D, logprob_D, kept_DW = choose(logits_DW, drawn.uniform_BT[at], sampling)
    drawn.free_BT[at] = free_D
    drawn.logprobs_BT[at] = logprob_D
    if values_D is not None:
        drawn.values_BT[at] = values_D
    if kept_DW is not None:
        row_D, at_D = torch.tensor(at)
        drawn.keep(row_D[free_D], at_D[free_D], kept_DW.cpu()[free_D])
    for one, token in zip(drawing, picked_D.tolist(), strict=True):
        one.take(token)


def sets_of(walks: Sequence[Walk | None]) -> tuple[Tensor, Tensor] | None:
    """out_DX, what each row's set leaves out, and free_D, where more than one token is left; None without grammars."""
    under = [place for place, walk in enumerate(walks) if walk is not None]
    if not under:
        return None
    allowed_UV = allowed_rows([walk for walk in walks if walk is not None])
    out_UX, free_U = left_out(allowed_UV), allowed_UV.sum(1) > 1
    if len(under) == len(walks):
        return out_UX, free_U
    out_DX, free_D = out_UX.new_zeros(len(walks), out_UX.shape[1]), torch.ones(len(walks), dtype=torch.bool)
    out_DX[under], free_D[under] = out_UX, free_U
    return out_DX, free_D
