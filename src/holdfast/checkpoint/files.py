"""Durable files: every byte a checkpoint writes goes through here.

A file is written whole or not at all:

    temporary file in the same directory -> write -> fsync file -> rename over the target -> fsync directory

`_write`, `_fsync` and `_rename` are the only calls that change the disk; the tests put their faults there.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from holdfast.documents import json_of
from holdfast.errors import HoldfastError

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
Buffer: TypeAlias = bytes | memoryview

TEMPORARY_PREFIX = ".tmp-"


@dataclass(frozen=True)
class Written:
    """What was handed to the disk: the number of bytes and their SHA-256."""

    size: int
    sha256: str


def _write(descriptor: int, data: memoryview) -> int:
    return os.write(descriptor, data)


def _fsync(descriptor: int) -> None:
    # On macOS fsync leaves the data in the drive's cache; F_FULLFSYNC does not.
    full_fsync = getattr(fcntl, "F_FULLFSYNC", None)
    if full_fsync is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, full_fsync)


def _rename(source: Path, target: Path) -> None:
    source.replace(target)


def write_all(descriptor: int, data: Buffer) -> None:
    """Write every byte; the system may take fewer than it is given."""
    rest = memoryview(data).cast("B")
    while rest:
        rest = rest[_write(descriptor, rest) :]


def sync(descriptor: int) -> None:
    """Return once the open file's bytes are on the disk."""
    _fsync(descriptor)


def write_synced(path: Path, chunks: Iterable[Buffer]) -> Written:
    """Create a new file from its chunks and fsync it; the caller fsyncs the directory. Raises OSError."""
    digest, size = hashlib.sha256(), 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        for chunk in chunks:
            write_all(descriptor, chunk)
            digest.update(chunk)
            size += memoryview(chunk).nbytes
        _fsync(descriptor)
    finally:
        os.close(descriptor)
    return Written(size, digest.hexdigest())


def sync_directory(directory: Path) -> None:
    """Make the directory's entries (creations and renames) durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        _fsync(descriptor)
    finally:
        os.close(descriptor)


def rename(source: Path, target: Path) -> None:
    """Rename within one directory; durable only after `sync_directory` of that directory."""
    _rename(source, target)


def make_directory(directory: Path) -> None:
    """Create the directory and its missing parents, each made durable in the one above it."""
    if directory.is_dir():
        return
    make_directory(directory.parent)
    directory.mkdir(exist_ok=True)
    sync_directory(directory.parent)


def write_atomic(path: Path, data: bytes) -> Written:
    """Replace the file with these bytes: after a crash it holds the old bytes or the new, never a mixture."""
    temporary = path.parent / f"{TEMPORARY_PREFIX}{path.name}-{secrets.token_hex(4)}"
    try:
        try:
            written = write_synced(temporary, [data])
            _rename(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise HoldfastError(f"{path} could not be written ({reason}); fix that and try again.") from error
    return written


def write_json_atomic(path: Path, document: JSON) -> Written:
    """Replace the file with this JSON document, atomically."""
    return write_atomic(path, encode_json(document, path.name))


def sha256_of(path: Path) -> str:
    """SHA-256 of the file's bytes, as hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sums_of(directory: Path) -> dict[str, str]:
    """SHA-256 of every file in a directory, by name."""
    return {file.name: sha256_of(file) for file in sorted(directory.iterdir())}


def check_sums(directory: Path, sums: Mapping[str, str], why: str) -> None:
    """Refuse a directory with a file that is changed, missing or added; `why` says what would come of it."""
    there = {file.name for file in directory.iterdir()} if directory.is_dir() else set()
    for name in sorted(there - sums.keys()):
        if not name.startswith("."):
            raise HoldfastError(f"{directory / name} does not belong there, and may change what is read; move it away.")
    for name, expected in sums.items():
        file = directory / name
        if not file.is_file() or sha256_of(file) != expected:
            raise HoldfastError(
                f"{file} is missing or not as it was written, {why}; bring the file back or start a new run."
            )


def encode_json(document: JSON, what: str) -> bytes:
    """Encode so that decoding gives the same values back: floats to the last bit, no NaN, text keys only."""
    _require_text_keys(document, what)
    try:
        text = json.dumps(document, indent=1, allow_nan=False)
        return (text + "\n").encode("utf-8")
    except (ValueError, TypeError) as error:
        raise HoldfastError(f"{what} cannot be stored as JSON ({error}); store finite plain values.") from error


def _require_text_keys(value: JSON, what: str) -> None:
    # json.dumps turns the key 1 into "1" without a word, and a restored mapping would not be found by it.
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise HoldfastError(f"{what} cannot be stored as JSON (key {key!r} is not text); use text keys.")
            _require_text_keys(item, what)
    elif isinstance(value, list | tuple):
        for item in value:
            _require_text_keys(item, what)


def read_json(path: Path) -> Any:
    """Read a JSON file; damage and absence are a HoldfastError."""
    try:
        return json_of(path.read_bytes(), parse_constant=_refuse_constant)
    except FileNotFoundError as error:
        raise HoldfastError(f"{path} is missing.") from error
    except OSError as error:
        raise HoldfastError(f"{path} could not be read ({error.strerror}).") from error
    except ValueError as error:
        raise HoldfastError(f"{path} is damaged: it is not valid JSON.") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def write_sealed_json(path: Path, body: Mapping[str, JSON]) -> Written:
    """Replace the file with a JSON object that carries the SHA-256 of its own content, atomically."""
    return write_atomic(path, sealed_json(body, path.name))


def sealed_json(body: Mapping[str, JSON], what: str) -> bytes:
    """The bytes of a JSON object that carries the SHA-256 of its own content."""
    # Without the final newline, so that there is no byte whose loss would go unseen.
    return encode_json({**body, "seal": _seal(body)}, what).rstrip()


def read_sealed_json(path: Path) -> dict[str, Any]:
    """Read a sealed JSON object; one changed character in it is a HoldfastError."""
    document = read_json(path)
    seal = document.pop("seal", None) if isinstance(document, dict) else None
    try:
        sound = seal is not None and seal == _seal(document)
    except ValueError:  # a number that is too large for any that was written
        sound = False
    if not sound:
        raise HoldfastError(f"{path} is damaged: its content does not match its own checksum.")
    return dict(document)


def _seal(body: Mapping[str, JSON]) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode("utf-8")).hexdigest()
