"""Where metrics go: JSON-lines files of the run, and the experiment trackers people already use."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import io
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from holdfast.checkpoint.files import Written, sync, sync_directory, write_all
from holdfast.documents import json_of
from holdfast.errors import HoldfastError

# First in a row, the rest by name: equal runs give equal bytes, and a person finds the step.
_FIRST_KEYS = ("stage", "step", "round", "event", "time")

PROJECT = "holdfast"


class Digest(Protocol):
    """A running checksum, as hashlib has it."""

    def update(self, data: bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


class Sink(Protocol):
    """A tracker outside the run directory. It gets finite values only: a value that is not makes a gap."""

    def log(self, step: int, round: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class JsonlFile:
    """A file of one JSON object per line that only grows, except when a resumed run takes it back.

    Its SHA-256 is carried along with every row, so that to say how far it has come reads nothing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        is_new = not path.exists()
        try:
            # A link would have somebody else's file cut and written to.
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
            if is_new:
                sync_directory(path.parent)
            self._drop_torn_line()
        except OSError as error:
            what = "it is a link" if path.is_symlink() else error.strerror
            raise HoldfastError(f"{path} cannot be opened for writing ({what}).") from error
        # Of what was there before: read when it is first asked for, since most files are taken back first.
        self._size = self.size()
        self._digest: Digest | None = None if self._size else hashlib.sha256()

    def append(self, row: Mapping[str, object]) -> None:
        """Write one row; when the call returns, another process can read it."""
        line = json.dumps(_ordered(row), allow_nan=False, separators=(", ", ": ")).encode("ascii") + b"\n"
        before = self.size()
        try:
            write_all(self._descriptor, line)
        except OSError as error:
            # Half a row would spoil the next one too.
            os.ftruncate(self._descriptor, before)
            raise HoldfastError(
                f"{self.path} could not be written ({error.strerror}); fix that and resume the run."
            ) from error
        self._size += len(line)
        if self._digest is not None:
            self._digest.update(line)

    def size(self) -> int:
        """Bytes that the file has."""
        return os.fstat(self._descriptor).st_size

    def committed(self) -> Written:
        """How far the file has come, once all its rows are on the disk: for a checkpoint, and to take it back to."""
        self.sync()
        if self._digest is None:
            with self.path.open("rb") as file:
                self._digest = digest_of_first(file, self._size)
        return Written(self._size, self._digest.hexdigest())

    def sync(self) -> None:
        """Return once all rows are on the disk."""
        sync(self._descriptor)

    def take_back(self, committed: Written, digest: Digest) -> None:
        """Take the file back to where it was, durably; `digest` is what `check_log` has read of it."""
        os.ftruncate(self._descriptor, committed.size)
        self.sync()
        self._size, self._digest = committed.size, digest

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _drop_torn_line(self) -> None:
        # A process killed in mid-write leaves half a row, which would swallow the first row written after it.
        end = size = self.size()
        while end > 0:
            start = max(0, end - 65536)
            newline = os.pread(self._descriptor, end - start, start).rfind(b"\n")
            end = start + newline + 1 if newline >= 0 else start
            if newline >= 0:
                break
        if end < size:
            os.ftruncate(self._descriptor, end)


NOTHING = Written(0, hashlib.sha256().hexdigest())


def check_log(path: Path, committed: Written) -> Digest:
    """Refuse a log of which what a checkpoint counts on is missing or changed; its running SHA-256. Only reads."""
    try:
        size = path.stat().st_size if path.exists() else 0
        if size < committed.size:
            raise HoldfastError(
                f"{path} has {size} bytes but the checkpoint was saved when it had {committed.size}; "
                "rows are missing, so bring the file back from a copy or start a new run."
            )
        with path.open("rb") if size else io.BytesIO() as file:
            digest = digest_of_first(file, committed.size)
    except OSError as error:
        raise HoldfastError(f"{path} cannot be read ({error.strerror}).") from error
    if digest.hexdigest() != committed.sha256:
        raise HoldfastError(
            f"{path} was changed: its first {committed.size} bytes are not those that the checkpoint was saved with, "
            "so bring the file back from a copy or start a new run."
        )
    return digest


def mark_logs(logs: Sequence[JsonlFile], places: dict[str, Any]) -> None:
    """Write how far these files have come into `places`, by name, as JSON for a checkpoint."""
    places |= {log.path.name: asdict(log.committed()) for log in logs}


def rewind_logs(logs: Sequence[JsonlFile], places: Mapping[str, Mapping[str, Any]]) -> None:
    """Take these files back to where `mark_logs` found them, all or none; one without a place is emptied."""
    committed = {log: Written(**places[log.path.name]) for log in logs if log.path.name in places}
    digests = {log: check_log(log.path, place) for log, place in committed.items()}
    for log in logs:
        log.take_back(committed.get(log, NOTHING), digests.get(log, hashlib.sha256()))


def digest_of_first(file: BinaryIO, size: int) -> Digest:
    """The SHA-256 of a file's first bytes, to be carried on."""
    digest = hashlib.sha256()
    while size > 0 and (piece := file.read(min(size, 1 << 20))):
        digest.update(piece)
        size -= len(piece)
    return digest


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Read a JSON-lines file that may be growing: a last line without its newline is not there yet."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n"):
                try:
                    yield json_of(line)
                except ValueError as error:
                    raise HoldfastError(
                        f"{path} is damaged: line {number} is not JSON ({error}); bring the file back from a copy."
                    ) from error


def _ordered(row: Mapping[str, object]) -> dict[str, object]:
    first = {key: row[key] for key in _FIRST_KEYS if key in row}
    return {key: _plain(row[key]) for key in (*first, *sorted(row.keys() - first.keys()))}


def _plain(value: object) -> object:
    """The value with mappings in a fixed order and, since JSON has no NaN, null for what is not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _import(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise _not_installed(extra) from error


class TensorBoardSink:
    """Scalars for TensorBoard; a resumed run gives the first step it writes, which hides older ones."""

    def __init__(self, directory: Path, purge_step: int | None = None) -> None:
        tensorboard = _import("torch.utils.tensorboard", "tensorboard")
        self._writer = tensorboard.SummaryWriter(str(directory), purge_step=purge_step)

    def log(self, step: int, round: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandbSink:
    """Rows for Weights & Biases against our own step, since its built-in one refuses a step done again."""

    def __init__(self, name: str, directory: Path) -> None:
        wandb = _import("wandb", "wandb")
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        self._run = wandb.init(project=project, name=name, dir=str(directory), id=name, resume="allow")
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, round: int, values: Mapping[str, float]) -> None:
        self._run.log({"step": step, "round": round, **values})

    def close(self) -> None:
        self._run.finish()


class TrackioSink:
    """Rows for Trackio; a run of the same name in the project is continued."""

    def __init__(self, name: str) -> None:
        trackio = _import("trackio", "trackio")
        self._run = trackio.init(project=PROJECT, name=name, resume="allow")

    def log(self, step: int, round: int, values: Mapping[str, float]) -> None:
        # "step" is a reserved key there, so it goes in as the argument.
        self._run.log({"round": round, **values}, step=step)

    def close(self) -> None:
        self._run.finish()


def check_sinks(names: Sequence[str]) -> None:
    """Refuse a sink whose package is not installed; nothing is opened."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise _not_installed(name)


def _not_installed(name: str) -> HoldfastError:
    return HoldfastError(
        f"{name} is not installed; run `pip install 'holdfast-rl[{name}]'` or leave it out of track.sinks."
    )


def open_sinks(names: Sequence[str], directory: Path, run_name: str) -> list[Sink]:
    """The sinks that the config names; metrics.jsonl is written in any case."""
    opened: list[Sink] = []
    for name in names:
        if name == "tensorboard":
            opened.append(TensorBoardSink(directory / "tensorboard"))
        elif name == "wandb":
            opened.append(WandbSink(run_name, directory))
        elif name == "trackio":
            opened.append(TrackioSink(run_name))
        else:
            raise HoldfastError(f"track.sinks names {name!r}; the sinks are tensorboard, wandb and trackio.")
    return opened
