"""What long work tells whoever is watching; the command line shows it as bars, a library user may ignore it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """A place to report to. `advance` may raise `Interrupted` when the user has asked to stop."""

    def begin(self, what: str, total: int) -> None: ...

    def advance(self, **figures: float) -> None: ...

    def say(self, words: str) -> None: ...

    def hold(self, words: str, done: int, total: int) -> None:
        """The work under way waits for something else, which is so far; at `total` it goes on."""
        ...


class Silent:
    """Reports to nobody."""

    def begin(self, what: str, total: int) -> None:
        return

    def advance(self, **figures: float) -> None:
        return

    def say(self, words: str) -> None:
        return

    def hold(self, words: str, done: int, total: int) -> None:
        return
