"""The list of what belongs to a checkpoint. It is written last, so a checkpoint without it is not one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.checkpoint.files import JSON, Written, read_sealed_json, sealed_json, sha256_of, write_synced
from holdfast.checkpoint.snapshot import MANIFEST_FILE
from holdfast.errors import HoldfastError

FORMAT = 2


@dataclass(frozen=True)
class Manifest:
    """Name, place in the order of saving, the size and SHA-256 of every file, and what the checkpoint belongs to."""

    name: str
    sequence: int
    files: Mapping[str, Written]
    owner: Mapping[str, JSON] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes that the checkpoint takes."""
        return sum(file.size for file in self.files.values())


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write the manifest, fsynced, under its own checksum."""
    body: dict[str, JSON] = {
        "format": FORMAT,
        "name": manifest.name,
        "sequence": manifest.sequence,
        "files": {name: {"size": file.size, "sha256": file.sha256} for name, file in sorted(manifest.files.items())},
        "owner": manifest.owner,
    }
    write_synced(directory / MANIFEST_FILE, [sealed_json(body, MANIFEST_FILE)])


def read_manifest(directory: Path) -> Manifest:
    """Read the manifest of a checkpoint; a damaged or missing one is a HoldfastError."""
    body = read_sealed_json(directory / MANIFEST_FILE)
    if body.get("format") != FORMAT:
        raise HoldfastError(
            f"{directory} has checkpoint format {body.get('format')}, and this version of holdfast reads "
            f"format {FORMAT}; use the version that wrote it."
        )
    files = {name: Written(file["size"], file["sha256"]) for name, file in body["files"].items()}
    return Manifest(body["name"], body["sequence"], files, body["owner"])


def check_complete(directory: Path, manifest: Manifest) -> None:
    """Refuse a checkpoint with a missing, extra or wrongly sized file, without reading the files."""
    present = {path.name: path for path in directory.iterdir()}
    expected = {*manifest.files, MANIFEST_FILE}
    if missing := sorted(expected - present.keys()):
        raise HoldfastError(f"{directory} is damaged: {', '.join(missing)} is missing.")
    if extra := sorted(present.keys() - expected):
        raise HoldfastError(f"{directory} is damaged: {', '.join(extra)} does not belong to it.")
    for name, file in manifest.files.items():
        size = present[name].stat().st_size
        if size != file.size:
            raise HoldfastError(f"{directory} is damaged: {name} has {size} bytes, not {file.size}.")


def check_contents(directory: Path, manifest: Manifest) -> None:
    """Refuse a checkpoint in which any file's bytes are not the ones that were saved."""
    for name, file in manifest.files.items():
        if sha256_of(directory / name) != file.sha256:
            raise HoldfastError(f"{directory} is damaged: the SHA-256 of {name} is not the one saved with it.")
