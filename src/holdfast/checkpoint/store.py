"""A directory of checkpoints: saved whole or not at all, verified on the way back, the oldest removed.

    save:  .tmp-NAME-…/ files, fsynced -> manifest.json, fsynced -> fsync directory
           -> an earlier NAME becomes .replaced-…-NAME -> rename to NAME -> fsync parent -> remove old ones
    load:  manifest's own checksum -> no file missing, extra or resized -> SHA-256 of every file -> read

At every moment of a save each finished checkpoint is under a name that `load` looks at. One process writes
(`lock.RunLock` sees to that); any number may read.
"""

from __future__ import annotations

import math
import os
import re
import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from holdfast.checkpoint.files import (
    TEMPORARY_PREFIX,
    make_directory,
    read_sealed_json,
    rename,
    sync_directory,
    write_sealed_json,
)
from holdfast.checkpoint.manifest import (
    Manifest,
    check_complete,
    check_contents,
    read_manifest,
    write_manifest,
)
from holdfast.checkpoint.snapshot import Snapshot, is_plain_name, read_snapshot, write_snapshot
from holdfast.errors import HoldfastError

_REPLACED = re.compile(r"\.replaced-[0-9a-f]{8}-(.+)")
_PINS_FILE = "pinned.json"


@dataclass(frozen=True)
class Loaded:
    """The newest usable checkpoint, and a sentence for each newer one that had to be passed over."""

    name: str
    snapshot: Snapshot
    skipped: tuple[str, ...]


class _Place(NamedTuple):
    """Where a checkpoint may be; `inode` tells a directory from a later one in the same place."""

    name: str
    path: Path
    inode: int

    @property
    def is_replaced(self) -> bool:
        return self.path.name != self.name


@dataclass(frozen=True)
class _Copy:
    """One checkpoint directory; `fault` says what is wrong with it, and is empty when nothing is."""

    name: str
    path: Path
    manifest: Manifest | None
    fault: str

    @property
    def sequence(self) -> float:
        """Place in the order of saving; unknown counts as newest, so that it is always reported."""
        return math.inf if self.manifest is None else self.manifest.sequence


class CheckpointStore:
    """Saves, verifies and prunes the checkpoints of one run."""

    def __init__(self, directory: Path, keep: int = 3) -> None:
        self.directory = directory
        self.keep = keep
        # Found damaged by reading: a checkpoint that looks complete but is not must not push a good one out.
        self._damaged: dict[Path, str] = {}
        self._sequences: dict[_Place, int] = {}

    def save(self, name: str, snapshot: Snapshot) -> Path:
        """Store the snapshot under the name, replacing an earlier one of that name, and prune old ones."""
        if not is_plain_name(name):
            raise HoldfastError(
                f"{name!r} is not a checkpoint name; use letters, digits, dots, dashes and underscores."
            )
        try:
            make_directory(self.directory)
            self._tidy()
            path = self._write(name, self._next_sequence(), snapshot)
        except OSError as error:
            raise HoldfastError(
                f"Checkpoint {name} could not be written to {self.directory} ({error.strerror or error}); "
                "the earlier checkpoints are untouched, so fix that and resume the run."
            ) from error
        try:
            self._prune()
        except OSError as error:
            raise HoldfastError(
                f"Checkpoint {name} is saved, but old ones in {self.directory} could not be removed "
                f"({error.strerror or error}); fix that and resume the run."
            ) from error
        return path

    def names(self) -> list[str]:
        """Names of the complete checkpoints, in the order in which they were saved, oldest first."""
        return list(_newest_of_each_name(self._copies()))

    def load(self, name: str) -> Snapshot:
        """Read one checkpoint after verifying every file of it."""
        copies = self._copies([place for place in self._places() if place.name == name])
        if not copies:
            raise HoldfastError(
                f"There is no checkpoint {name} in {self.directory}; it has {', '.join(self.names()) or 'none'}."
            )
        # A copy that was being replaced stands in only while its successor has not taken the name.
        in_place = [copy for copy in copies if copy.path.name == name]
        try:
            return self._verified((in_place or copies)[-1])
        except HoldfastError as error:
            raise HoldfastError(f"{error} Choose another checkpoint.") from error

    def is_empty(self) -> bool:
        """Whether no checkpoint was ever finished here; one that is damaged by now was."""
        return not self._places()

    def faults(self) -> dict[str, str]:
        """What is wrong with each checkpoint after reading every byte of it; an empty text for nothing."""
        faults = {}
        for copy in self._copies():
            try:
                self._verified(copy)
                faults[copy.name] = ""
            except HoldfastError as error:
                faults[copy.name] = str(error)
        return faults

    def load_newest(self, check: Callable[[Snapshot], None] = lambda snapshot: None) -> Loaded:
        """Read the newest checkpoint that passes verification, saying which newer ones did not and why.

        `check` may refuse a sound one with a HoldfastError, where something else that it stands on is damaged.
        """
        skipped: list[str] = []
        for copy in reversed(self._copies()):
            try:
                snapshot = self._verified(copy)
                check(snapshot)
                return Loaded(copy.name, snapshot, tuple(skipped))
            except HoldfastError as error:
                skipped.append(f"Checkpoint {copy.name} was passed over: {error}")
        reasons = " ".join(skipped) or "It holds no checkpoint."
        raise HoldfastError(f"No usable checkpoint in {self.directory}, so the run must be started anew. {reasons}")

    @property
    def pinned(self) -> frozenset[str]:
        """Names that pruning keeps whatever their age."""
        path = self.directory / _PINS_FILE
        if not path.exists():
            return frozenset()
        try:
            return frozenset(read_sealed_json(path)["names"])
        except HoldfastError as error:
            raise HoldfastError(
                f"{error} Nothing is pruned until then: delete it and pin the good checkpoints again."
            ) from error

    def pin(self, name: str) -> None:
        """Keep this checkpoint whatever its age."""
        if name not in self.names():
            raise HoldfastError(
                f"Checkpoint {name} cannot be pinned: {self.directory} has no complete one of that name."
            )
        self._write_pins(self.pinned | {name})

    def unpin(self, name: str) -> None:
        """Let pruning remove this checkpoint again when it is old."""
        self._write_pins(self.pinned - {name})

    def _write_pins(self, names: frozenset[str]) -> None:
        write_sealed_json(self.directory / _PINS_FILE, {"names": sorted(names)})

    def _places(self) -> list[_Place]:
        """Every checkpoint directory, by its own name; nothing in them is looked at."""
        if not self.directory.is_dir():
            return []
        places = []
        with os.scandir(self.directory) as entries:
            for entry in entries:
                replaced = _REPLACED.fullmatch(entry.name) if entry.name.startswith(".") else None
                name = replaced.group(1) if replaced else entry.name
                if is_plain_name(name) and entry.is_dir():
                    places.append(_Place(name, self.directory / entry.name, entry.inode()))
        return sorted(places, key=lambda place: place.path.name)

    def _copies(self, places: Sequence[_Place] | None = None) -> list[_Copy]:
        """The checkpoints in these places (all), oldest first, checked as far as possible without reading files."""
        copies = [self._inspect(place.name, place.path) for place in (self._places() if places is None else places)]
        return sorted(copies, key=lambda copy: copy.sequence)

    def _inspect(self, name: str, path: Path) -> _Copy:
        manifest: Manifest | None = None
        try:
            manifest = read_manifest(path)
            if manifest.name != name:
                raise HoldfastError(f"{path} is damaged: its manifest belongs to checkpoint {manifest.name}.")
            check_complete(path, manifest)
        except (HoldfastError, OSError) as error:
            return _Copy(name, path, manifest, str(error))
        return _Copy(name, path, manifest, self._damaged.get(path, ""))

    def _verified(self, copy: _Copy) -> Snapshot:
        if copy.fault or copy.manifest is None:
            raise HoldfastError(copy.fault)
        try:
            check_contents(copy.path, copy.manifest)
            return read_snapshot(copy.path, copy.manifest.files)
        except (HoldfastError, OSError) as error:
            self._damaged[copy.path] = str(error)
            raise HoldfastError(str(error)) from error

    def _next_sequence(self) -> int:
        # A directory's manifest never changes, so only those that were not there before are read: a store that keeps
        # every version would otherwise take longer with each.
        known = self._sequences
        self._sequences = {
            place: known[place] if place in known else _sequence_of(place.path) for place in self._places()
        }
        return 1 + max(self._sequences.values(), default=0)

    def _write(self, name: str, sequence: int, snapshot: Snapshot) -> Path:
        temporary = self._temporary_path(name)
        path = self.directory / name
        try:
            temporary.mkdir()
            files = write_snapshot(temporary, snapshot)
            write_manifest(temporary, Manifest(name, sequence, files))
            sync_directory(temporary)
            if path.exists():
                rename(path, self.directory / f".replaced-{secrets.token_hex(4)}-{name}")
            rename(temporary, path)
        except BaseException:
            # A full disk must get its space back; what cannot be removed now goes at the next save.
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        self._damaged.pop(path, None)
        sync_directory(self.directory)
        return path

    def _tidy(self) -> None:
        """Clear what a dead writer left: half-written directories, and a replacement that did not happen."""
        for path in self.directory.glob(f"{TEMPORARY_PREFIX}*"):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        for copy in reversed(self._copies([place for place in self._places() if place.is_replaced])):
            home = self.directory / copy.name
            if not copy.fault and not home.exists():
                rename(copy.path, home)

    def _prune(self) -> None:
        """Remove replaced copies, and what is older than the newest `keep` complete ones and not pinned."""
        places = self._places()
        if len(places) <= self.keep and not any(place.is_replaced for place in places):
            return
        copies = self._copies(places)
        newest = _newest_of_each_name(copies)
        oldest_kept = min(sequence for sequence, _ in list(newest.values())[-self.keep :])
        pinned = self.pinned
        for copy in copies:
            # A directory with another checkpoint's manifest is somebody's copy, and not ours to remove.
            ours = copy.manifest is not None and copy.manifest.name == copy.name
            aged = ours and copy.sequence < oldest_kept and copy.name not in pinned
            replaced = copy.path.name != copy.name and newest.get(copy.name, (0, copy.path))[1] != copy.path
            if aged or replaced:
                self._remove(copy.path)

    def _remove(self, path: Path) -> None:
        # Renamed first: a removal cut short must not leave a checkpoint with half its files.
        doomed = self._temporary_path(path.name)
        rename(path, doomed)
        shutil.rmtree(doomed)

    def _temporary_path(self, name: str) -> Path:
        return self.directory / f"{TEMPORARY_PREFIX}{name}-{secrets.token_hex(4)}"


def _sequence_of(path: Path) -> int:
    try:
        return read_manifest(path).sequence
    except (HoldfastError, OSError):
        return 0


def _newest_of_each_name(copies: list[_Copy]) -> dict[str, tuple[int, Path]]:
    """Sequence and path of the newest complete copy of each name, oldest first."""
    newest: dict[str, tuple[int, Path]] = {}
    for copy in copies:
        if copy.manifest is not None and not copy.fault:
            newest.pop(copy.name, None)
            newest[copy.name] = (copy.manifest.sequence, copy.path)
    return newest
