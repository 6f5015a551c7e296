"""One answer as it is spelt: which tokens may come next, which have to.

    grammar.begin() -> walk;  walk.allowed() -> a token is drawn from it -> walk.take(token) -> ... -> the end token

Nothing here is drawn: the same tokens always give the same sets. So the sets that an answer was drawn from are not
kept, they are had again by walking its tokens.

Shapes: A walks, V vocabulary of the tokenizer, W numbers that a model gives, at least V.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from holdfast.errors import HoldfastError


class OffGrammar(HoldfastError):
    """A token that could not have come next was taken."""


class Walk(Protocol):
    """One answer being spelt. It is over with the end token, or where its grammar's room is used up."""

    def allowed(self) -> Tensor:
        """bool (V,), on the CPU: the tokens that may come next, at least one, the end token where the answer may end.

        Where `forced` names one, it is that one alone. Not to be written to.
        """
        ...

    def forced(self) -> list[int]:
        """The tokens that come next in any case, in their order, the end token included; not yet taken; often none."""
        ...

    def take(self, token: int) -> None:
        """Go on with a token; `OffGrammar` where it is not allowed."""
        ...


class Grammar(Protocol):
    """What may be said. It knows how many tokens an answer has room for, and leads to an end in time where it can."""

    def begin(self) -> Walk:
        """An answer of which nothing is spelt yet."""
        ...


@runtime_checkable
class WalkTogether(Protocol):
    """A kind of walk whose sets are computed faster for many at once."""

    @classmethod
    def together(cls, walks: Sequence[Walk]) -> Tensor:
        """bool (A, V): `allowed` of each."""
        ...

    @classmethod
    def look_ahead(cls, walks: Sequence[Walk]) -> None:
        """Compute what `allowed` and `forced` of each will ask for."""
        ...


@runtime_checkable
class WalkByStretches(Protocol):
    """A kind of walk that takes what has to come at once."""

    def follow(self, most: int) -> list[int]:
        """Take the tokens that come next in any case, at most so many; which they are."""
        ...


def follow(walk: Walk, most: int) -> list[int]:
    """Take the tokens that come next in any case, at most so many; which they are. Others may follow them."""
    if _by_stretches(type(walk)):
        return walk.follow(most)  # type: ignore[attr-defined,no-any-return]
    forced = walk.forced()[:most]
    for token in forced:
        walk.take(token)
    return forced


@cache
def _by_stretches(kind: type) -> bool:
    return issubclass(kind, WalkByStretches)


def look_ahead(walks: Sequence[Walk]) -> None:
    """Have walks that are asked for their sets soon compute them at once, where that is faster."""
    if walks and (kind := _together(walks)) is not None:
        kind.look_ahead(walks)


def _together(walks: Sequence[Walk]) -> type[WalkTogether] | None:
    """The kind of walk that all of these are, where it is one whose sets are computed together."""
    kinds = set(map(type, walks))
    return _kind_together(kinds.pop()) if len(kinds) == 1 else None


@cache
def _kind_together(kind: type) -> type[WalkTogether] | None:
    return kind if issubclass(kind, WalkTogether) else None


def allowed_rows(walks: Sequence[Walk], width: int = 0) -> Tensor:
    """bool (A, V), or (A, W) with what is beyond the vocabulary not allowed: `allowed` of each walk."""
    kind = _together(walks)
    rows_AV = torch.stack([walk.allowed() for walk in walks]) if kind is None else kind.together(walks)
    beyond = width - rows_AV.shape[-1]
    return torch.nn.functional.pad(rows_AV, (0, beyond)) if beyond > 0 else rows_AV
