"""Files are replaced whole or not at all, and JSON comes back as it went in."""

import errno
import hashlib
import math
import os
import random
import stat
import struct
from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint import files
from holdfast.errors import HoldfastError


def test_write_atomic_replaces_and_reports_size_and_hash(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    files.write_atomic(path, b"old")
    written = files.write_atomic(path, b"abc")
    assert path.read_bytes() == b"abc"
    # SHA-256("abc") is the test vector of FIPS 180-2, appendix B.1.
    assert written == files.Written(3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    assert files.sha256_of(path) == written.sha256
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.bin"]


def test_sha256_of_a_file_longer_than_one_chunk(tmp_path: Path) -> None:
    data = random.Random(1).randbytes((1 << 20) + 17)
    (tmp_path / "big").write_bytes(data)
    assert files.sha256_of(tmp_path / "big") == hashlib.sha256(data).hexdigest()


def test_order_is_write_fsync_rename_fsync_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def spy(name: str) -> None:
        real = getattr(files, name)

        def wrapped(*arguments: Any) -> object:
            is_directory = name == "_fsync" and stat.S_ISDIR(os.fstat(arguments[0]).st_mode)
            calls.append(name + (" directory" if is_directory else ""))
            return real(*arguments)

        monkeypatch.setattr(files, name, wrapped)

    for name in ("_write", "_fsync", "_rename"):
        spy(name)
    files.write_atomic(tmp_path / "a", b"x")
    assert calls == ["_write", "_fsync", "_rename", "_fsync directory"]


@pytest.mark.parametrize("primitive", ["_write", "_fsync", "_rename"])
def test_a_failed_write_leaves_the_old_file_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, primitive: str
) -> None:
    path = tmp_path / "a.json"
    files.write_json_atomic(path, {"x": 1})

    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, primitive, fail)
    with pytest.raises(HoldfastError, match=r"a\.json could not be written.*No space left"):
        files.write_json_atomic(path, {"x": 2})
    assert files.read_json(path) == {"x": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_write", lambda descriptor, data: os.write(descriptor, data[:3]))
    files.write_atomic(tmp_path / "a", b"0123456789")
    assert (tmp_path / "a").read_bytes() == b"0123456789"


def test_json_floats_come_back_bit_for_bit(tmp_path: Path) -> None:
    rng = random.Random(7)
    values = [0.1, -0.0, 5e-324, 1.7976931348623157e308, 1 / 3]
    while len(values) < 500:
        value = struct.unpack("<d", rng.randbytes(8))[0]
        if math.isfinite(value):
            values.append(value)
    files.write_json_atomic(tmp_path / "f.json", values)
    back = files.read_json(tmp_path / "f.json")
    assert [struct.pack("<d", value) for value in back] == [struct.pack("<d", value) for value in values]


def test_json_text_comes_back_exactly(tmp_path: Path) -> None:
    text = 'a\x00b\u2028 \u202e "quoted" \ud800 \U0001f600'
    files.write_json_atomic(tmp_path / "t.json", {"text": text})
    assert files.read_json(tmp_path / "t.json") == {"text": text}


@pytest.mark.parametrize("bad", [{"x": math.nan}, [math.inf], {1: "a"}, {"a": [{2: 3}]}, {"x": object()}])
def test_json_that_would_not_come_back_is_refused(tmp_path: Path, bad: object) -> None:
    with pytest.raises(HoldfastError, match="cannot be stored as JSON"):
        files.write_json_atomic(tmp_path / "bad.json", bad)  # type: ignore[arg-type]
    assert not (tmp_path / "bad.json").exists()


@pytest.mark.parametrize("content", [b"{", b"", b"\xff\xfe{}", b'{"x": NaN}'])
def test_damaged_json_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "d.json").write_bytes(content)
    with pytest.raises(HoldfastError, match="damaged"):
        files.read_json(tmp_path / "d.json")


def test_a_sealed_document_with_a_number_beyond_all_floats_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"loss": 1e999, "seal": "0"}')
    with pytest.raises(HoldfastError, match="does not match its own checksum"):
        files.read_sealed_json(tmp_path / "a.json")


def test_every_bit_of_a_sealed_document_matters(tmp_path: Path) -> None:
    path = tmp_path / "sealed.json"
    body = {"name": "round-0001", "sequence": 3}
    files.write_sealed_json(path, body)
    good = path.read_bytes()
    assert files.read_sealed_json(path) == body
    # Every third bit, which in turn meets each of the eight bits of a byte.
    for position in range(0, 8 * len(good), 3):
        flipped = bytearray(good)
        flipped[position // 8] ^= 1 << position % 8
        path.write_bytes(flipped)
        with pytest.raises(HoldfastError, match="damaged"):
            files.read_sealed_json(path)
