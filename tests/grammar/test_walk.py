"""Walks, one by one and together."""

from __future__ import annotations

import pytest
import torch
from tokenizers_of_kinds import sets_of
from torch import Tensor

from holdfast.grammar.walk import OffGrammar, allowed_rows

END, A, B = 0, 1, 2


class Twice:
    """Two letters, never the same twice running, then the end."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def begin(self) -> Twice:
        return Twice()

    def allowed(self) -> Tensor:
        after = {0: [A, B], 1: [B if self.taken[-1:] == [A] else A], 2: [END]}[len(self.taken)]
        return torch.tensor([token in after for token in (END, A, B)])

    def forced(self) -> list[int]:
        tokens = self.allowed().nonzero().flatten().tolist()
        return tokens if len(tokens) == 1 else []

    def take(self, token: int) -> None:
        if not self.allowed()[token]:
            raise OffGrammar("no")
        self.taken.append(token)


def test_the_sets_of_an_answer_are_had_again() -> None:
    sets = sets_of(Twice(), [A, B, END])
    assert [s.tolist() for s in sets] == [[False, True, True], [False, False, True], [True, False, False]]


def test_what_cannot_be_said() -> None:
    with pytest.raises(OffGrammar):
        sets_of(Twice(), [B, B])
    with pytest.raises(OffGrammar):
        sets_of(Twice(), [END])


def test_rows_as_wide_as_a_model() -> None:
    one, two = Twice(), Twice()
    two.take(A)
    rows = allowed_rows([one, two], width=5)
    assert rows.tolist() == [[False, True, True, False, False], [False, False, True, False, False]]
