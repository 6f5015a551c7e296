"""A .jsonl file read again and again while somebody writes it: each time only what is new.

A resumed run cuts its files back and writes on. Then what was read last is no longer where it was, and all of it is
read anew.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from holdfast.documents import json_of

JsonRow = dict[str, Any]
Row = TypeVar("Row")
REMEMBERED = 256  # bytes before the end of what was read, by which a file that was cut is told


@dataclass
class Tail(Generic[Row]):
    """A file that may be absent, how far it has been read, and how many of its lines could not be.

    With a `limit` nothing is read beyond so many bytes: the file as it once was.
    """

    path: Path
    read: Callable[[JsonRow], Row]
    offset: int = 0
    before: bytes = b""
    unread: int = 0
    rows: list[Row] = field(default_factory=list)
    limit: int | None = None

    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def was_cut(self) -> bool:
        """Whether what was read last is not there any more."""
        if not self.offset:
            return False
        if not self.path.exists():
            return True
        with self.path.open("rb") as file:
            file.seek(self.offset - len(self.before))
            return file.read(len(self.before)) != self.before

    def more(self) -> Iterator[Row]:
        """The rows that are new, one by one; half a line waits for its other half."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self.offset)
            for line in file:
                beyond = self.limit is not None and self.offset + len(line) > self.limit
                if beyond or not line.endswith(b"\n"):
                    return
                self.offset += len(line)
                self.before = (self.before + line)[-REMEMBERED:]
                try:
                    yield self.read(json_of(line))
                except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                    self.unread += 1

    def all(self) -> list[Row]:
        """All rows so far, kept from one time to the next."""
        self.rows += self.more()
        return self.rows
