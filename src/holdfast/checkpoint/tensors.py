"""Tensors in a safetensors file, streamed one at a time through `files`, where they are hashed and fsynced.

The library's own writer either builds the whole file in memory or writes past our hands; the format is small:

    length of the header (8 bytes, little-endian) | header (JSON, padded with spaces) | the tensors' bytes

Source: https://huggingface.co/docs/safetensors (format). Reading is left to the library.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from holdfast.checkpoint.files import Written, write_synced
from holdfast.errors import HoldfastError

_DTYPE_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> Written:
    """Write a new safetensors file and fsync it. Tensors that share memory are each written in full."""
    # Wide types first, so that every tensor starts at a multiple of its item size.
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    return write_synced(path, _file_chunks({name: tensors[name] for name in order}, path.name))


def _file_chunks(tensors: Mapping[str, torch.Tensor], file_name: str) -> Iterator[bytes | memoryview]:
    header: dict[str, object] = {}
    begin = 0
    for name, tensor in tensors.items():
        if tensor.dtype not in _DTYPE_NAMES or tensor.layout != torch.strided or name == "__metadata__":
            raise HoldfastError(
                f"Tensor {name!r} of {file_name} ({tensor.dtype}, {tensor.layout}) cannot be stored in "
                "safetensors; convert or rename it before saving."
            )
        end = begin + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _DTYPE_NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
        begin = end
    encoded = json.dumps(header, separators=(",", ":")).encode("utf-8")
    encoded += b" " * (-len(encoded) % 8)
    yield struct.pack("<Q", len(encoded)) + encoded
    for tensor in tensors.values():
        yield _bytes_of(tensor)


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    flat = tensor.detach().to("cpu").contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Read every tensor of a safetensors file on to the CPU."""
    try:
        return dict(load_file(path))
    except (SafetensorError, OSError) as error:
        raise HoldfastError(f"{path} is damaged or not a safetensors file ({error}).") from error
