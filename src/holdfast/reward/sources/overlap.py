"""Questions to somebody elsewhere, so many at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from holdfast.errors import HoldfastError
from holdfast.reward.outcome import Unscored

T = TypeVar("T")
Item = TypeVar("Item")


def side_by_side(ask: Callable[[Item], T], items: Sequence[Item], parallel: int) -> list[T | Unscored]:
    """What is answered about each of them, or why nothing is."""

    def attempt(item: Item) -> T | Unscored:
        try:
            return ask(item)
        except HoldfastError as error:
            return Unscored(str(error).rstrip("."))

    with ThreadPoolExecutor(parallel) as pool:
        return list(pool.map(attempt, items))
