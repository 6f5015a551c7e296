"""Full disks, bad disks, power loss, damage: the newest complete checkpoint loads, a torn one never does."""

import errno
import os
import random
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import tally
from holdfast.checkpoint import files
from holdfast.checkpoint.snapshot import Snapshot
from holdfast.checkpoint.store import CheckpointStore
from holdfast.errors import HoldfastError

SEED = 20250


def snapshot_of(value: float) -> Snapshot:
    return Snapshot(
        {
            "policy": {"w": torch.full((3,), value), "b": torch.tensor(value)},
            "critic": {"v": torch.ones(2) * value},
        },
        {"state": {"value": value}},
    )


def value_of(snapshot: Snapshot) -> float:
    value = float(snapshot.tensors["policy"]["b"])
    assert snapshot.tensors["policy"]["w"].tolist() == [value] * 3
    assert snapshot.tensors["critic"]["v"].tolist() == [value] * 2
    assert snapshot.documents["state"] == {"value": value}
    return value


class FailingDisk:
    """Lets `allowed` calls of one primitive through, then fails every call with the given error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, primitive: str, allowed: int, code: int) -> None:
        self.calls = 0
        real = getattr(files, primitive)

        def call(*arguments: Any) -> Any:
            self.calls += 1
            if self.calls > allowed:
                raise OSError(code, os.strerror(code))
            return real(*arguments)

        monkeypatch.setattr(files, primitive, call)


@pytest.mark.parametrize("new_name", ["b", "c"], ids=["replacing", "adding"])
@pytest.mark.parametrize(
    ("primitive", "code"), [("_write", errno.ENOSPC), ("_fsync", errno.EIO), ("_rename", errno.EIO)]
)
def test_a_disk_that_fails_at_the_nth_call_for_every_n(
    tmp_path: Path, primitive: str, code: int, new_name: str
) -> None:
    for allowed in range(1000):
        directory = tmp_path / str(allowed)
        store = CheckpointStore(directory, keep=2)
        store.save("a", snapshot_of(1))
        store.save("b", snapshot_of(2))
        with pytest.MonkeyPatch.context() as monkeypatch:
            disk = FailingDisk(monkeypatch, primitive, allowed, code)
            complaint = ""
            try:
                store.save(new_name, snapshot_of(3))
            except HoldfastError as error:
                complaint = str(error)
        if disk.calls <= allowed:
            assert allowed > 1
            break
        tally.count("failed writes")
        assert os.strerror(code) in complaint
        assert "resume the run" in complaint
        reopened = CheckpointStore(directory, keep=2)
        newest = reopened.load_newest()
        assert value_of(newest.snapshot) in (2, 3)
        assert newest.skipped == ()
        assert value_of(reopened.load("b")) in (2, 3)
        assert "a" in reopened.names() or "c" in reopened.names()
        # Once the disk is well again, saving works and leaves nothing behind.
        reopened.save(new_name, snapshot_of(4))
        assert value_of(reopened.load_newest().snapshot) == 4
        assert {path.name for path in directory.iterdir()} == set(reopened.names())
        assert len(reopened.names()) == 2
    else:
        pytest.fail("the disk never stopped failing")


def test_a_full_disk_gets_its_space_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(tmp_path)
    store.save("a", snapshot_of(1))
    FailingDisk(monkeypatch, "_write", 3, errno.ENOSPC)
    with pytest.raises(HoldfastError, match="No space left"):
        store.save("b", snapshot_of(2))
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_pins_survive_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(tmp_path)
    for name in ("a", "b"):
        store.save(name, snapshot_of(1))
    store.pin("a")
    FailingDisk(monkeypatch, "_write", 0, errno.ENOSPC)
    with pytest.raises(HoldfastError, match="No space left"):
        store.pin("b")
    assert store.pinned == {"a"}


@pytest.fixture
def read_only_directory() -> Iterator[Path]:
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        directory = Path(name) / "checkpoints"
        CheckpointStore(directory).save("a", snapshot_of(1))
        directory.chmod(0o555)
        if user == 0:
            # Permissions do not bind root, so the test runs as nobody.
            os.seteuid(65534)
        yield directory
        os.seteuid(user)
        directory.chmod(0o755)


def test_a_read_only_directory(read_only_directory: Path) -> None:
    store = CheckpointStore(read_only_directory)
    with pytest.raises(HoldfastError, match=r"Checkpoint b could not be written.*Permission denied"):
        store.save("b", snapshot_of(2))
    assert value_of(store.load_newest().snapshot) == 1


def flip_a_bit(path: Path) -> None:
    tally.count("damaged files")
    data = bytearray(path.read_bytes())
    position = random.Random(SEED).randrange(8 * len(data))
    data[position // 8] ^= 1 << position % 8
    path.write_bytes(data)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def swap_with_the_older_checkpoint(path: Path) -> None:
    older = path.parent.parent / "round-0001" / path.name
    mine, theirs = path.read_bytes(), older.read_bytes()
    path.write_bytes(theirs)
    assert mine != theirs


FILE_NAMES = ["policy.safetensors", "critic.safetensors", "state.json", "manifest.json"]


@pytest.mark.parametrize(
    "damage",
    [flip_a_bit, truncate, empty, Path.unlink, swap_with_the_older_checkpoint],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("file_name", FILE_NAMES)
def test_any_damaged_file_is_found_and_the_one_before_is_used(
    tmp_path: Path, file_name: str, damage: Callable[[Path], None]
) -> None:
    store = CheckpointStore(tmp_path)
    store.save("round-0001", snapshot_of(1))
    store.save("round-0002", snapshot_of(2))
    damage(tmp_path / "round-0002" / file_name)
    tally.count("damaged files", damage is not flip_a_bit)  # which counts itself

    loaded = CheckpointStore(tmp_path).load_newest()
    assert loaded.name == "round-0001"
    assert value_of(loaded.snapshot) == 1
    assert len(loaded.skipped) == 1
    assert "round-0002 was passed over" in loaded.skipped[0]
    assert file_name in loaded.skipped[0] or "its manifest belongs to checkpoint round-0001" in loaded.skipped[0]
    with pytest.raises(HoldfastError, match="Choose another checkpoint"):
        CheckpointStore(tmp_path).load("round-0002")


def test_every_bit_of_every_file_is_guarded(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.save("a", Snapshot({"t": {"x": torch.tensor([1.0])}}, {"d": 1}))
    for path in sorted((tmp_path / "a").iterdir()):
        good = path.read_bytes()
        for position in range(0, 8 * len(good), 7):
            flipped = bytearray(good)
            flipped[position // 8] ^= 1 << position % 8
            path.write_bytes(flipped)
            tally.count("damaged files")
            with pytest.raises(HoldfastError):
                CheckpointStore(tmp_path).load("a")
        path.write_bytes(good)
    assert store.load("a").documents == {"d": 1}


def test_two_files_of_one_checkpoint_swapped(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    same_size = {"x": torch.zeros(4)}, {"x": torch.ones(4)}
    store.save("a", Snapshot({"one": same_size[0], "two": same_size[1]}))
    one, two = tmp_path / "a" / "one.safetensors", tmp_path / "a" / "two.safetensors"
    one.rename(tmp_path / "aside")
    two.rename(one)
    (tmp_path / "aside").rename(two)
    with pytest.raises(HoldfastError, match=r"SHA-256 of one\.safetensors"):
        store.load("a")


def test_two_whole_checkpoints_swapped(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.save("a", snapshot_of(1))
    store.save("b", snapshot_of(2))
    (tmp_path / "a").rename(tmp_path / "aside")
    (tmp_path / "b").rename(tmp_path / "a")
    (tmp_path / "aside").rename(tmp_path / "b")
    for name in ("a", "b"):
        with pytest.raises(HoldfastError, match="its manifest belongs to"):
            store.load(name)


def test_an_extra_file_is_refused(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    path = store.save("a", snapshot_of(1))
    (path / "more.safetensors").write_bytes(b"")
    with pytest.raises(HoldfastError, match=r"more\.safetensors does not belong"):
        store.load("a")
    assert store.names() == []


def test_every_checkpoint_damaged_is_an_error_that_names_each(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    for name in ("a", "b"):
        flip_a_bit(store.save(name, snapshot_of(1)) / "policy.safetensors")
    with pytest.raises(HoldfastError, match=r"No usable checkpoint.*Checkpoint b was.*Checkpoint a was"):
        store.load_newest()


def test_a_file_that_cannot_be_read_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(tmp_path)
    store.save("a", snapshot_of(1))
    store.save("b", snapshot_of(2))
    real = files.sha256_of

    def bad_sector(path: Path) -> str:
        if path.parent.name == "b":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path)

    monkeypatch.setattr("holdfast.checkpoint.manifest.sha256_of", bad_sector)
    loaded = store.load_newest()
    assert (loaded.name, value_of(loaded.snapshot)) == ("a", 1)
    assert "Input/output error" in loaded.skipped[0]


def test_a_damaged_checkpoint_does_not_push_the_good_one_out(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    store.save("a", snapshot_of(1))
    flip_a_bit(store.save("b", snapshot_of(2)) / "policy.safetensors")
    assert store.load_newest().name == "a"
    store.save("c", snapshot_of(3))
    assert value_of(store.load("a")) == 1
    # The damaged one is replaced by its redone self, and removed when it is old.
    store.save("b", snapshot_of(4))
    assert store.names() == ["c", "b"]
    assert value_of(store.load_newest().snapshot) == 4
    assert {path.name for path in tmp_path.iterdir()} == {"b", "c"}


def test_a_checkpoint_without_a_manifest_is_replaced_when_its_name_is_saved_again(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    (store.save("a", snapshot_of(1)) / "manifest.json").unlink()
    store.save("a", snapshot_of(2))
    assert value_of(store.load("a")) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_left_over_temporary_directories_never_load_and_are_cleared(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    shutil.copytree(store.save("a", snapshot_of(1)), tmp_path / ".tmp-b-0123abcd")
    assert store.names() == ["a"]
    assert store.load_newest().name == "a"
    store.save("c", snapshot_of(3))
    assert {path.name for path in tmp_path.iterdir()} == {"a", "c"}


def test_a_replacement_cut_short_loads_and_gets_its_name_back(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.save("a", snapshot_of(1)).rename(tmp_path / ".replaced-0123abcd-a")
    assert store.names() == ["a"]
    assert value_of(store.load("a")) == 1
    assert value_of(store.load_newest().snapshot) == 1
    store.save("b", snapshot_of(2))
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}
    assert value_of(store.load("a")) == 1


def test_a_replaced_copy_that_was_not_removed_does_not_count_as_the_checkpoint(tmp_path: Path) -> None:
    directory = tmp_path / "checkpoints"
    store = CheckpointStore(directory, keep=2)
    shutil.copytree(store.save("a", snapshot_of(1)), tmp_path / "aside")
    store.save("b", snapshot_of(2))
    store.save("a", snapshot_of(3))
    (tmp_path / "aside").rename(directory / ".replaced-0123abcd-a")
    assert store.names() == ["b", "a"]
    assert value_of(store.load("a")) == 3
    store.save("c", snapshot_of(4))
    assert store.names() == ["a", "c"]
    assert {path.name for path in directory.iterdir()} == {"a", "c"}


def test_a_copy_that_somebody_made_by_hand_is_neither_loaded_nor_pruned(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    shutil.copytree(store.save("a", snapshot_of(1)), tmp_path / "a-backup")
    for name in ("b", "c", "d"):
        store.save(name, snapshot_of(2))
    assert store.names() == ["c", "d"]
    assert {path.name for path in tmp_path.iterdir()} == {"a-backup", "c", "d"}


class PowerCut:
    """Records what a power cut at each moment of a save could leave on the disk.

    The model of the disk: bytes not yet fsynced may be kept, dropped or garbled; a file whose directory is
    not yet fsynced may be absent; of the renames not yet fsynced any number, from the last back, may be
    undone.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path, images: Path) -> None:
        self.directory, self.images = directory, images
        self.unsynced_bytes: set[int] = set()
        self.unsynced_entries: set[int] = set()
        self.unsynced_renames: list[tuple[Path, Path]] = []
        self.known = {path.stat().st_ino for path in directory.rglob("*")}
        self.random = random.Random(SEED)
        self.taken = 0
        real_write, real_fsync, real_rename = files._write, files._fsync, files._rename

        def write(descriptor: int, data: memoryview) -> int:
            self.take()
            inode = os.fstat(descriptor).st_ino
            self.unsynced_bytes.add(inode)
            if inode not in self.known:
                self.unsynced_entries.add(inode)
            return real_write(descriptor, data)

        def fsync(descriptor: int) -> None:
            self.take()
            status = os.fstat(descriptor)
            real_fsync(descriptor)
            if stat.S_ISDIR(status.st_mode):
                synced = next(p for p in (directory, *directory.rglob("*")) if p.stat().st_ino == status.st_ino)
                self.unsynced_entries -= {path.stat().st_ino for path in synced.iterdir()}
                self.unsynced_renames = [pair for pair in self.unsynced_renames if pair[1].parent != synced]
            else:
                self.unsynced_bytes.discard(status.st_ino)

        def rename(source: Path, target: Path) -> None:
            self.take()
            real_rename(source, target)
            self.unsynced_renames.append((source, target))

        monkeypatch.setattr(files, "_write", write)
        monkeypatch.setattr(files, "_fsync", fsync)
        monkeypatch.setattr(files, "_rename", rename)

    def take(self) -> None:
        fates = ["kept"]
        fates += ["dropped", "garbled"] if self.unsynced_bytes else []
        fates += ["absent"] if self.unsynced_entries else []
        for fate in fates:
            for undone in range(len(self.unsynced_renames) + 1):
                self._take_image(fate, undone)

    def _take_image(self, fate: str, undone: int) -> None:
        image = self.images / f"{self.taken:04d}-{fate}-{undone}"
        self.taken += 1
        tally.count("power cuts")
        shutil.copytree(self.directory, image)
        for path in sorted(self.directory.rglob("*"), reverse=True):
            copy, inode = image / path.relative_to(self.directory), path.stat().st_ino
            if inode in self.unsynced_bytes and fate == "dropped":
                copy.write_bytes(b"")
            elif inode in self.unsynced_bytes and fate == "garbled":
                copy.write_bytes(self.random.randbytes(copy.stat().st_size))
            elif inode in self.unsynced_entries and fate == "absent":
                copy.unlink()
        for source, target in list(reversed(self.unsynced_renames))[:undone]:
            source, target = (image / path.relative_to(self.directory) for path in (source, target))
            if target.exists():
                target.rename(source)


@pytest.mark.parametrize("new_name", ["b", "c"], ids=["replacing", "adding"])
def test_power_loss_at_every_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_name: str) -> None:
    directory = tmp_path / "disk"
    store = CheckpointStore(directory, keep=2)
    store.save("a", snapshot_of(1))
    store.save("b", snapshot_of(2))
    with monkeypatch.context() as patches:
        power = PowerCut(patches, directory, tmp_path / "images")
        store.save(new_name, snapshot_of(3))
        during = power.taken
        # From here on the save has been reported as done, so nothing may be lost any more.
        power.take()
    images = sorted((tmp_path / "images").iterdir())
    assert during > 20
    assert {image.name.split("-")[1] for image in images} == {"kept", "dropped", "garbled", "absent"}
    for number, image in enumerate(images):
        survivor = CheckpointStore(image, keep=2)
        loaded = survivor.load_newest()
        value = value_of(loaded.snapshot)
        assert value in ((2, 3) if number < during else (3,)), image.name
        assert loaded.skipped == (), image.name
        assert value_of(survivor.load("b")) in (2, 3)
        survivor.save(new_name, snapshot_of(4))
        assert value_of(survivor.load_newest().snapshot) == 4
        assert len(survivor.names()) == 2
        assert {path.name for path in image.iterdir()} == set(survivor.names()), image.name
