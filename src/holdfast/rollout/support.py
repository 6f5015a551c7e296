"""The support of answers: the tokens that could have been drawn at each of their positions.

    a grammar's sets   are not kept: walking an answer's tokens gives them again
    top-k's and top-p's are kept with the rollout, since a policy that has learnt would keep others

A token that had to come, since its grammar allowed no other, was not drawn: it is no response token, and nothing is
read out, learnt or counted at its place. What top-k and top-p leave alone is drawn all the same: with log-prob 0 under
the policy, and not under a reference, which is whole.

Shapes: B rows, T tokens, V vocabulary, N free tokens of all rows end to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from holdfast.errors import HoldfastError
from holdfast.grammar.walk import Grammar, OffGrammar
from holdfast.models.batches import FreeTokens
from holdfast.models.token_sets import Interned, KeptSets, TokenSets


@dataclass(frozen=True)
class Support:
    """Which tokens of some answers were drawn freely, and from which sets. `free_BT` is True at those tokens.

    `grammars` are the rows' own, with None for one that has none; `replayed` are their sets where the grammars are
    not at hand, as in another process.
    """

    free_BT: Tensor
    responses: list[list[int]]
    grammars: list[Grammar | None] | None = None
    kept: KeptSets | None = None
    replayed: Interned | None = None

    def of(self, rows: Sequence[int]) -> FreeTokens:
        """The free tokens of some rows."""
        places = [self.places[row] for row in rows]
        numbers = [torch.arange(self._starts[row], self._starts[row] + len(self.places[row])) for row in rows]
        return FreeTokens(places, self.sets.picked(torch.cat(numbers)))

    @cached_property
    def places(self) -> list[list[int]]:
        """Where each row's free tokens stand."""
        return [row.nonzero()[:, 0].tolist() for row in self.free_BT]

    @cached_property
    def _starts(self) -> list[int]:
        counts_B = self.free_BT.sum(1)
        return (counts_B.cumsum(0) - counts_B).tolist()

    @cached_property
    def sets(self) -> TokenSets:
        """All rows' sets, the grammars' walked again."""
        if self.grammars is None:
            return TokenSets(self.replayed, self.kept)
        sets = _Sets()
        for grammar, tokens, places in zip(self.grammars, self.responses, self.places, strict=True):
            free, numbers = sets.along(grammar, tokens)
            if free != places:
                raise HoldfastError(
                    "A grammar allows other tokens than it did when the answer was drawn; what it allows may depend on "
                    "the tokens before alone."
                )
            sets.which += numbers
        return TokenSets(sets.interned(), self.kept)

    def without_grammars(self) -> Support:
        """The same with its sets walked already, for another process, which may not have the grammars."""
        if self.grammars is None:
            return self
        return Support(self.free_BT, self.responses, None, self.kept, self.sets.grammar)


def support_of_answers(
    grammars: Sequence[Grammar | None], responses: Sequence[Sequence[int]], strays: bool = True
) -> Support | None:
    """The support of answers that may be from anywhere; None where none of them has a grammar.

    One that its grammar does not allow is free from the first token that is not allowed, to say whatever it says;
    without `strays` it is an `OffGrammar`.
    """
    if all(grammar is None for grammar in grammars):
        return None
    sets, answers = _Sets(), [list(response) for response in responses]
    free_BT = torch.zeros(len(answers), max(map(len, answers), default=0), dtype=torch.bool)
    for b, (grammar, tokens) in enumerate(zip(grammars, answers, strict=True)):
        free, numbers = sets.along(grammar, tokens, strays)
        free_BT[b, free] = True
        sets.which += numbers
    return Support(free_BT, answers, None, None, sets.interned())


class _Sets:
    """Different sets, each once, in the order in which they are met."""

    def __init__(self) -> None:
        self.which: list[int] = []
        self._numbers: dict[bytes, int] = {}
        self._out: list[Tensor] = []
        self._vocabulary = 0

    def along(
        self, grammar: Grammar | None, tokens: Sequence[int], strays: bool = False
    ) -> tuple[list[int], list[int]]:
        """Where an answer's free tokens stand, and the number of each one's set; 0 is the set of everything."""
        if grammar is None:
            return list(range(len(tokens))), [0] * len(tokens)
        walk, free, numbers = grammar.begin(), list[int](), list[int]()
        at = 0
        try:
            while at < len(tokens):
                forced = walk.forced()
                for token in forced[: len(tokens) - at]:
                    if tokens[at] != token:
                        raise OffGrammar("Another token had to come.")
                    walk.take(token)
                    at += 1
                if forced:
                    continue
                allowed_V = walk.allowed()
                if not allowed_V[tokens[at]]:
                    raise OffGrammar("The token is not allowed.")
                if int(allowed_V.sum()) > 1:
                    free.append(at)
                    numbers.append(self._number(allowed_V))
                walk.take(tokens[at])
                at += 1
        except OffGrammar:
            if not strays:
                raise
            free += range(at, len(tokens))
            numbers += [0] * (len(tokens) - at)
        return free, numbers

    def _number(self, allowed_V: Tensor) -> int:
        key = allowed_V.numpy().tobytes()
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._out) + 1
            self._out.append(left_out(allowed_V))
        return number

    def interned(self) -> Interned:
        width = len(self._out[0]) if self._out else 1
        nothing = torch.zeros(width, dtype=torch.bool)
        return Interned(torch.stack([nothing, *self._out]), torch.tensor(self.which, dtype=torch.long))


def left_out(allowed: Tensor) -> Tensor:
    """What a set leaves out, and what the tokenizer does not know."""
    return torch.nn.functional.pad(~allowed, (0, 1), value=True)
