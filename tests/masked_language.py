"""A small language over the tiny models' vocabulary, by rules that are written down once, and as a grammar."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from holdfast.grammar.walk import OffGrammar
from tiny_models import EOS, VOCABULARY

# What may follow each beginning, or each token. 5 is always followed by 8 and 13, and 14 by the end.
OTHERS = [EOS, 6, 9, 14, 20, 22]
RULES: dict[int | None, list[int]] = {None: [5, 6, 7], 5: [8], 8: [13], 13: [9, 10, EOS], 6: [EOS, 11, 14], 14: [EOS]}


def may_follow(tokens: Sequence[int]) -> list[int]:
    """The tokens that may come next."""
    return RULES.get(tokens[-1] if tokens else None, OTHERS)


class Rules:
    """The language as a grammar; `stretches` off has it name nothing that must come, so that all of it is decoded."""

    def __init__(self, stretches: bool = True) -> None:
        self.stretches = stretches

    def begin(self) -> RulesWalk:
        return RulesWalk(self.stretches)


class RulesWalk:
    def __init__(self, stretches: bool) -> None:
        self.tokens: list[int] = []
        self.stretches = stretches

    def allowed(self) -> Tensor:
        allowed_V = torch.zeros(VOCABULARY, dtype=torch.bool)
        allowed_V[may_follow(self.tokens)] = True
        return allowed_V

    def forced(self) -> list[int]:
        forced: list[int] = []
        while self.stretches and EOS not in [*self.tokens, *forced][-1:]:
            following = may_follow([*self.tokens, *forced])
            if len(following) > 1:
                break
            forced += following
        return forced

    def take(self, token: int) -> None:
        if token not in may_follow(self.tokens):
            raise OffGrammar(f"{token} after {self.tokens}")
        self.tokens.append(token)
