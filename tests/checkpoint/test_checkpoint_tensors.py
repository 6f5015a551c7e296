"""The streamed safetensors files are the ones the library writes and reads."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from holdfast.checkpoint.files import sha256_of
from holdfast.checkpoint.tensors import read_tensors, write_tensors
from holdfast.errors import HoldfastError


def assert_same_bits(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    for name in left:
        assert left[name].dtype == right[name].dtype, name
        assert left[name].shape == right[name].shape, name
        as_bytes = [t.contiguous().reshape(-1).view(torch.uint8) for t in (left[name], right[name])]
        assert torch.equal(*as_bytes), name


def mixed_tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    base = torch.randn(4, 6, generator=generator)
    return {
        "float32": base,
        "transposed": base.T,
        "strided": base[:, ::2],
        "tied": base,
        "float64": base.double(),
        "bfloat16": base.bfloat16(),
        "float16": base.half(),
        "special": torch.tensor([float("nan"), float("inf"), -0.0]),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
        "int64": torch.tensor([[-(2**63), 2**63 - 1]]),
        "flags": torch.tensor([True, False, True]),
        "rng": generator.get_state(),
        "needs_grad": torch.nn.Parameter(base.clone()),
        "name with spaces/é": torch.ones(1),
    }


def test_every_kind_of_tensor_comes_back_bit_for_bit(tmp_path: Path) -> None:
    tensors = mixed_tensors()
    written = write_tensors(tmp_path / "a.safetensors", tensors)
    assert written.size == (tmp_path / "a.safetensors").stat().st_size
    assert written.sha256 == sha256_of(tmp_path / "a.safetensors")
    assert_same_bits(read_tensors(tmp_path / "a.safetensors"), tensors)


def test_the_library_agrees_on_the_format(tmp_path: Path) -> None:
    tensors = {name: tensor.contiguous() for name, tensor in mixed_tensors().items() if name != "tied"}
    write_tensors(tmp_path / "ours.safetensors", tensors)
    save_file({name: t.detach().clone() for name, t in tensors.items()}, tmp_path / "theirs.safetensors")
    assert_same_bits(load_file(tmp_path / "ours.safetensors"), load_file(tmp_path / "theirs.safetensors"))
    assert_same_bits(read_tensors(tmp_path / "theirs.safetensors"), tensors)


def test_no_tensors_at_all(tmp_path: Path) -> None:
    write_tensors(tmp_path / "none.safetensors", {})
    assert read_tensors(tmp_path / "none.safetensors") == {}


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("wave", torch.zeros(2, dtype=torch.complex128)),
        ("sparse", torch.eye(2).to_sparse()),
        ("__metadata__", torch.zeros(1)),
    ],
)
def test_what_the_format_cannot_hold_is_refused_by_name(tmp_path: Path, name: str, tensor: torch.Tensor) -> None:
    with pytest.raises(HoldfastError, match=name):
        write_tensors(tmp_path / "a.safetensors", {name: tensor})


def test_a_file_that_is_not_safetensors_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"not a header")
    with pytest.raises(HoldfastError, match="not a safetensors file"):
        read_tensors(tmp_path / "a.safetensors")
