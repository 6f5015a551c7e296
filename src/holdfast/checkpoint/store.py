"""A directory of checkpoints: saved whole or not at all, verified on the way back, the oldest removed.

A name that ends in -step-N is of a checkpoint within a round. It stands in for the next one, takes nobody's place, and
goes when that is saved.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.checkpoint.files import (
    TEMPORARY_PREFIX,
    make_directory,
    read_json,
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
from holdfast.checkpoint.snapshot import DOCUMENT_SUFFIX, Snapshot, is_plain_name, read_snapshot, write_snapshot
from holdfast.errors import HoldfastError

_REPLACED = re.compile(r"\.replaced-[0-9a-f]{8}-(.+)")
_WITHIN_A_ROUND = re.compile(r".+-step-\d+")
PINS_FILE = "pinned.json"

# What all checkpoints together may take where nobody has said how many to keep, in bytes; the newest stay in any case.
ROOM = 10 * 2**30
FEWEST = 2


@dataclass(frozen=True)
class Loaded:
    """The newest usable checkpoint, what it belongs to, and a sentence for each newer one that was passed over."""

    name: str
    snapshot: Snapshot
    skipped: tuple[str, ...]
    owner: Mapping[str, Any] = field(default_factory=dict)


class _Place(NamedTuple):
    """Where a checkpoint may be; `inode` tells a directory from a later one in the same place."""

    name: str
    path: Path
    inode: int

    @property
    def is_replaced(self) -> bool:
        return self.path.name != self.name

    @property
    def passes(self) -> bool:
        return _passes(self.name)


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

    @property
    def size(self) -> int:
        return 0 if self.manifest is None else self.manifest.size


class CheckpointStore:
    """Saves, verifies and prunes the checkpoints of one run; `keep` 0 keeps as many as there is `ROOM` for.

    `owner` is written into each checkpoint, and says whose they are.
    """

    def __init__(self, directory: Path, keep: int = 3, owner: Mapping[str, Any] | None = None) -> None:
        self.directory = directory
        self.keep = keep
        self.owner: Mapping[str, Any] = owner or {}
        # Found damaged by reading: a checkpoint that looks complete but is not must not push a good one out.
        self._damaged: dict[Path, str] = {}
        self._manifests: dict[_Place, Manifest | None] = {}

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
            self._prune(name)
        except OSError as error:
            raise HoldfastError(
                f"Checkpoint {name} is saved, but old ones in {self.directory} could not be removed "
                f"({error.strerror or error}); fix that and resume the run."
            ) from error
        return path

    def names(self) -> list[str]:
        """Names of the complete checkpoints, in the order in which they were saved, oldest first."""
        return list(_newest_of_each_name(self._copies()))

    def newest_owner(self) -> tuple[str, Mapping[str, Any]] | None:
        """Name of the newest complete checkpoint and what it says it belongs to; None where there is none."""
        for copy in reversed(self._copies()):
            if copy.manifest is not None and not copy.fault:
                return copy.name, copy.manifest.owner
        return None

    def newest_document(self, stem: str, name: str | None = None) -> Any:
        """A document of the newest complete checkpoint (of this name), read alone and not verified; or None."""
        for copy in reversed(self._copies()):
            path = copy.path / (stem + DOCUMENT_SUFFIX)
            if name in (None, copy.name) and not copy.fault and path.is_file():
                return read_json(path)
        return None

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
                owner = {} if copy.manifest is None else copy.manifest.owner
                return Loaded(copy.name, snapshot, tuple(skipped), owner)
            except HoldfastError as error:
                skipped.append(f"Checkpoint {copy.name} was passed over: {error}")
        reasons = " ".join(skipped) or "It holds no checkpoint."
        raise HoldfastError(f"No usable checkpoint in {self.directory}, so the run must be started anew. {reasons}")

    @property
    def pinned(self) -> frozenset[str]:
        """Names that pruning keeps whatever their age."""
        path = self.directory / PINS_FILE
        if not path.exists():
            return frozenset()
        try:
            return frozenset(read_sealed_json(path)["names"])
        except (HoldfastError, KeyError) as error:
            wrong = error if isinstance(error, HoldfastError) else f"{path} holds something else than pins."
            raise HoldfastError(
                f"{wrong} Nothing is pruned until then: delete it, and the run writes it again when it goes on."
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
        write_sealed_json(self.directory / PINS_FILE, {"names": sorted(names)})

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

    def _all_manifests(self) -> list[Manifest]:
        # A directory's manifest never changes, so only those that were not there before are read: a store that keeps
        # every version would otherwise take longer with each.
        known = self._manifests
        self._manifests = {
            place: known[place] if place in known else _manifest_of(place.path) for place in self._places()
        }
        return [manifest for manifest in self._manifests.values() if manifest is not None]

    def _next_sequence(self) -> int:
        return 1 + max((manifest.sequence for manifest in self._all_manifests()), default=0)

    def _write(self, name: str, sequence: int, snapshot: Snapshot) -> Path:
        temporary = self._temporary_path(name)
        path = self.directory / name
        try:
            temporary.mkdir()
            files = write_snapshot(temporary, snapshot)
            write_manifest(temporary, Manifest(name, sequence, files, self.owner))
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

    def _prune(self, saved: str) -> None:
        """Remove replaced copies, what is too old and not pinned, and what stood in for the one just saved."""
        places = self._places()
        if not self._crowded(places) and not any(p.is_replaced or (p.passes and p.name != saved) for p in places):
            return
        copies = self._copies(places)
        newest = _newest_of_each_name(copies)
        oldest_kept = self._oldest_kept([copy for name, copy in newest.items() if not _passes(name)])
        last = max(copy.sequence for copy in newest.values())
        pinned = self.pinned
        for copy in copies:
            # A directory with another checkpoint's manifest is somebody's copy, and not ours to remove.
            ours = copy.manifest is not None and copy.manifest.name == copy.name and copy.name not in pinned
            aged = ours and copy.sequence < (last if _passes(copy.name) else oldest_kept)
            replaced = copy.path.name != copy.name and newest.get(copy.name, copy).path != copy.path
            if aged or replaced:
                self._remove(copy.path)

    def _crowded(self, places: Sequence[_Place]) -> bool:
        """Whether there may be more than is to be kept; nothing in the checkpoints is looked at."""
        if self.keep:
            return sum(not place.passes for place in places) > self.keep
        return sum(manifest.size for manifest in self._all_manifests()) > ROOM

    def _oldest_kept(self, rounds: Sequence[_Copy]) -> float:
        """The place in the order of saving from which on checkpoints stay, given the complete ones, oldest first."""
        if self.keep:
            return rounds[-self.keep :][0].sequence if rounds else 0.0
        kept, taken = 0.0, 0
        for n, copy in enumerate(reversed(rounds)):
            taken += copy.size
            if n >= FEWEST and taken > ROOM:
                break
            kept = copy.sequence
        return kept

    def _remove(self, path: Path) -> None:
        # Renamed first: a removal cut short must not leave a checkpoint with half its files.
        doomed = self._temporary_path(path.name)
        rename(path, doomed)
        shutil.rmtree(doomed)

    def _temporary_path(self, name: str) -> Path:
        return self.directory / f"{TEMPORARY_PREFIX}{name}-{secrets.token_hex(4)}"


def _passes(name: str) -> bool:
    """Whether a checkpoint of this name is of a place within a round, and the next one takes its place."""
    return _WITHIN_A_ROUND.fullmatch(name) is not None


def _manifest_of(path: Path) -> Manifest | None:
    try:
        return read_manifest(path)
    except (HoldfastError, OSError):
        return None


def _newest_of_each_name(copies: list[_Copy]) -> dict[str, _Copy]:
    """The newest complete copy of each name, oldest first."""
    newest: dict[str, _Copy] = {}
    for copy in copies:
        if copy.manifest is not None and not copy.fault:
            newest.pop(copy.name, None)
            newest[copy.name] = copy
    return newest
