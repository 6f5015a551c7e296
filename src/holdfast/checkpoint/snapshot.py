"""What a checkpoint holds: named groups of tensors and JSON documents, one file each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from holdfast.checkpoint.files import JSON, Written, encode_json, read_json, write_synced
from holdfast.checkpoint.tensors import read_tensors, write_tensors
from holdfast.errors import HoldfastError

TENSOR_SUFFIX = ".safetensors"
DOCUMENT_SUFFIX = ".json"
MANIFEST_FILE = "manifest.json"

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Snapshot:
    """The state of a run at one moment."""

    # file stem -> name -> tensor, saved as STEM.safetensors
    tensors: Mapping[str, Mapping[str, torch.Tensor]] = field(default_factory=dict)
    # file stem -> document, saved as STEM.json
    documents: Mapping[str, JSON] = field(default_factory=dict)


def is_plain_name(name: str) -> bool:
    """Whether the name is safe as a file or directory name: letters, digits, dot, dash, underscore."""
    return _PLAIN_NAME.fullmatch(name) is not None


def write_snapshot(directory: Path, snapshot: Snapshot) -> dict[str, Written]:
    """Write each part of the snapshot as an fsynced file in an empty directory, and say what each holds."""
    for stem in (*snapshot.tensors, *snapshot.documents):
        if not is_plain_name(stem):
            raise HoldfastError(f"{stem!r} is not a file name; use letters, digits, dots, dashes and underscores.")
    # Encoded before anything is written, so that a value JSON cannot hold costs no disk work.
    encoded = {stem + DOCUMENT_SUFFIX: encode_json(d, stem) for stem, d in snapshot.documents.items()}
    if MANIFEST_FILE in encoded:
        raise HoldfastError("A document cannot be called 'manifest'; the checkpoint writes its own.")
    written = {
        stem + TENSOR_SUFFIX: write_tensors(directory / (stem + TENSOR_SUFFIX), group)
        for stem, group in snapshot.tensors.items()
    }
    written |= {name: write_synced(directory / name, [data]) for name, data in encoded.items()}
    return written


def read_snapshot(directory: Path, file_names: Mapping[str, Written]) -> Snapshot:
    """Read back the files that `write_snapshot` wrote."""
    tensors = {
        name.removesuffix(TENSOR_SUFFIX): read_tensors(directory / name)
        for name in file_names
        if name.endswith(TENSOR_SUFFIX)
    }
    documents = {
        name.removesuffix(DOCUMENT_SUFFIX): read_json(directory / name)
        for name in file_names
        if name.endswith(DOCUMENT_SUFFIX)
    }
    return Snapshot(tensors, documents)
