"""The bytes of a file, unpacked where it is gzip or zstandard; its first bytes say so, not its name."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from holdfast.data.problems import BadData, Problem
from holdfast.data.rows import load_pyarrow
from holdfast.errors import first_line

Packing = Literal["", "gzip", "zstandard"]

PACKED: dict[bytes, Packing] = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstandard"}
BUFFER = 1 << 18


def packing_of(path: Path) -> Packing:
    """How a file is packed, by its first bytes."""
    with path.open("rb") as file:
        first = file.read(4)
    return next((name for magic, name in PACKED.items() if first.startswith(magic)), "")


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file's bytes as a stream, a part in memory at a time; a packed file that is damaged is a BadData."""
    packing = packing_of(path)
    with path.open("rb") as file:
        if not packing:
            yield file
            return
        try:
            raw: Any = gzip.GzipFile(fileobj=file) if packing == "gzip" else _zstandard(path, file)
            with io.BufferedReader(raw, BUFFER) as unpacked:
                yield cast(BinaryIO, unpacked)
        except (EOFError, OSError, zlib.error) as error:
            reason = first_line(error).rstrip(".")
            text = f"is {packing} that is cut off or damaged ({reason}); copy it again"
            raise BadData(Problem(str(path), 0, "damaged_file", text)) from error


class _Unpacked(io.RawIOBase):
    """pyarrow's stream as one that Python can buffer."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._stream.read(len(buffer))
        buffer[: len(part)] = part
        return len(part)


def _zstandard(path: Path, file: BinaryIO) -> _Unpacked:
    pyarrow = load_pyarrow(f"{path} is packed by zstandard, which needs")
    return _Unpacked(pyarrow.CompressedInputStream(pyarrow.PythonFile(file, "r"), "zstd"))
