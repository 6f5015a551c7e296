"""Checkpoints come back as they were saved, in the order they were saved, and the right ones are kept."""

import math
from pathlib import Path

import pytest
import torch

from holdfast.checkpoint import store as store_module
from holdfast.checkpoint.files import read_json
from holdfast.checkpoint.manifest import Manifest
from holdfast.checkpoint.snapshot import Snapshot
from holdfast.checkpoint.store import CheckpointStore
from holdfast.errors import HoldfastError


def snapshot_of(value: float) -> Snapshot:
    weight = torch.full((2, 3), value)
    return Snapshot(
        {
            "policy": {"head": weight, "tied": weight, "turned": weight.T},
            "rng": {"cpu": torch.get_rng_state()},
        },
        {"state": {"step": int(value), "beta": value / 3}},
    )


def value_of(snapshot: Snapshot) -> float:
    value = float(snapshot.tensors["policy"]["head"][0, 0])
    assert torch.equal(snapshot.tensors["policy"]["turned"], torch.full((3, 2), value))
    assert snapshot.documents["state"] == {"step": int(value), "beta": value / 3}
    return value


def test_a_snapshot_comes_back(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "runs" / "checkpoints")
    saved = snapshot_of(1.5)
    path = store.save("round-0001", saved)
    assert path == tmp_path / "runs" / "checkpoints" / "round-0001"
    loaded = store.load("round-0001")
    assert value_of(loaded) == 1.5
    assert torch.equal(loaded.tensors["rng"]["cpu"], saved.tensors["rng"]["cpu"])
    assert sorted(file.name for file in path.iterdir()) == [
        "manifest.json",
        "policy.safetensors",
        "rng.safetensors",
        "state.json",
    ]
    manifest = read_json(path / "manifest.json")
    assert manifest["format"] == 2
    assert manifest["files"]["state.json"]["size"] == (path / "state.json").stat().st_size


def test_the_tensors_loaded_are_not_tied_to_the_file(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.save("a", snapshot_of(1))
    loaded = store.load("a")
    loaded.tensors["policy"]["head"].fill_(7)
    assert value_of(store.load("a")) == 1
    for name in ("b", "c", "d"):
        store.save(name, snapshot_of(2))
    assert float(loaded.tensors["policy"]["head"].sum()) == 42


def test_order_is_that_of_saving_not_of_names(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=4)
    for name in ("round-0003", "round-0001", "round-0002"):
        store.save(name, snapshot_of(1))
    assert store.names() == ["round-0003", "round-0001", "round-0002"]
    # After a rollback an earlier name is written again; it is then the newest.
    CheckpointStore(tmp_path, keep=4).save("round-0003", snapshot_of(9))
    assert store.names() == ["round-0001", "round-0002", "round-0003"]
    assert store.load_newest().name == "round-0003"


def test_the_oldest_are_pruned_and_pinned_ones_stay(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    store.save("good", snapshot_of(0))
    store.pin("good")
    for step in range(1, 6):
        store.save(f"step-{step}", snapshot_of(step))
    assert store.names() == ["good", "step-4", "step-5"]
    assert CheckpointStore(tmp_path).pinned == {"good"}
    assert value_of(store.load("good")) == 0
    store.unpin("good")
    store.save("step-6", snapshot_of(6))
    assert store.names() == ["step-5", "step-6"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pinned.json", "step-5", "step-6"]


def test_a_checkpoint_within_a_round_goes_with_the_next_save_and_pushes_none_out(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    for n in (0, 1):
        store.save(f"round-{n:04d}", snapshot_of(n))
    for step in range(1, 4):
        store.save(f"round-0002-step-{step:04d}", snapshot_of(step))
        assert store.names() == ["round-0000", "round-0001", f"round-0002-step-{step:04d}"]
    assert store.load_newest().name == "round-0002-step-0003"
    store.pin("round-0002-step-0003")
    store.save("round-0002-step-0004", snapshot_of(4))
    store.save("round-0002", snapshot_of(2))
    assert store.names() == ["round-0001", "round-0002-step-0003", "round-0002"]


def test_without_a_number_every_round_stays_while_there_is_room_and_two_in_any_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path, keep=0)
    for n in range(5):
        store.save(f"round-{n:04d}", snapshot_of(n))
    assert store.names() == [f"round-{n:04d}" for n in range(5)]
    one = sum(path.stat().st_size for path in (tmp_path / "round-0000").iterdir() if path.name != "manifest.json")
    store.pin("round-0000")
    monkeypatch.setattr(store_module, "ROOM", 3 * one + one // 2)
    store.save("round-0005", snapshot_of(5))
    assert store.names() == ["round-0000", "round-0003", "round-0004", "round-0005"]
    # One that is too large for the room: it and the one before it stay.
    monkeypatch.setattr(store_module, "ROOM", one // 2)
    store.save("round-0006", snapshot_of(6))
    assert store.names() == ["round-0000", "round-0005", "round-0006"]


def test_pruning_keeps_enough_when_one_name_is_saved_again_and_again(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    store.save("a", snapshot_of(1))
    store.save("b", snapshot_of(2))
    for value in range(3, 7):
        store.save("b", snapshot_of(value))
    assert store.names() == ["a", "b"]
    assert value_of(store.load("b")) == 6
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_pinning_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match="cannot be pinned"):
        CheckpointStore(tmp_path).pin("round-0009")


def test_damaged_pins_stop_pruning_with_a_sentence_and_lose_no_checkpoint(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    for step in range(2):
        store.save(f"step-{step}", snapshot_of(step))
    store.pin("step-0")
    pins = tmp_path / "pinned.json"
    pins.write_text(pins.read_text().replace("step-0", "step-1"))
    with pytest.raises(HoldfastError, match=r"pinned\.json is damaged.*delete it, and the run writes it again"):
        store.save("step-2", snapshot_of(2))
    assert store.names() == ["step-0", "step-1", "step-2"]
    pins.write_bytes((tmp_path / "step-0" / "manifest.json").read_bytes())  # sealed, and of something else
    with pytest.raises(HoldfastError, match=r"pinned\.json holds something else than pins.*again"):
        _ = store.pinned


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "a b", "a\n"])
def test_names_that_are_not_plain_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(HoldfastError, match="not a checkpoint name"):
        CheckpointStore(tmp_path).save(name, snapshot_of(1))
    with pytest.raises(HoldfastError, match="not a file name"):
        CheckpointStore(tmp_path).save("fine", Snapshot({}, {name: 1}))


def test_a_document_called_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match="manifest"):
        CheckpointStore(tmp_path).save("a", Snapshot({}, {"manifest": 1}))


def test_a_value_json_cannot_hold_leaves_nothing_behind(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    with pytest.raises(HoldfastError, match="state cannot be stored as JSON"):
        store.save("a", Snapshot({}, {"state": {"loss": math.nan}}))
    assert list(tmp_path.iterdir()) == []


def test_nothing_to_load(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "absent")
    assert store.names() == []
    with pytest.raises(HoldfastError, match="holds no checkpoint"):
        store.load_newest()
    with pytest.raises(HoldfastError, match="no checkpoint round-0001"):
        store.load("round-0001")
    assert not (tmp_path / "absent").exists()


def test_a_checkpoint_of_another_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(tmp_path)
    store.save("old", snapshot_of(1))
    monkeypatch.setattr("holdfast.checkpoint.manifest.FORMAT", 3)
    with pytest.raises(HoldfastError, match=r"format 2.*reads format 3"):
        store.load("old")


def test_a_store_that_keeps_everything_reads_each_manifest_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saving the thousandth version must not read the nine hundred and ninety-nine before it."""
    read: list[str] = []
    read_manifest = store_module.read_manifest

    def counted(directory: Path) -> Manifest:
        read.append(directory.name)
        return read_manifest(directory)

    monkeypatch.setattr(store_module, "read_manifest", counted)
    store = CheckpointStore(tmp_path, keep=10**9)
    for number in range(12):
        store.save(f"v{number:03d}", snapshot_of(1.0))
    assert len(read) <= 12
    read.clear()
    store.load("v003")
    assert read == ["v003"]
    # Another store that comes to the same directory goes on counting where this one stopped.
    CheckpointStore(tmp_path, keep=10**9).save("v012", snapshot_of(1.0))
    store.save("v013", snapshot_of(1.0))
    assert store.names() == [f"v{number:03d}" for number in range(14)]
