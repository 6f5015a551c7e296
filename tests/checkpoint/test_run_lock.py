"""One run directory, one trainer."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tally
from holdfast.checkpoint.lock import RunLock
from holdfast.errors import HoldfastError

HOLDER = """
import sys, time
from pathlib import Path
from holdfast.checkpoint.lock import RunLock
with RunLock(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


def hold_in_another_process(directory: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(directory)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    tally.count("second trainers")
    return process


def test_a_second_process_is_refused_and_takes_over_when_the_first_is_killed(tmp_path: Path) -> None:
    process = hold_in_another_process(tmp_path)
    try:
        with (
            pytest.raises(HoldfastError, match=rf"in use by process {process.pid} .*stop it"),
            RunLock(tmp_path),
        ):
            pytest.fail("two processes held the lock")
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=10)
        with (
            RunLock(tmp_path),
            pytest.raises(HoldfastError, match=f"process {os.getpid()} "),
            RunLock(tmp_path),
        ):
            pytest.fail("one process held the lock twice")
    finally:
        process.kill()
        process.wait(timeout=10)
        assert process.stdout is not None
        process.stdout.close()


def test_the_lock_is_free_after_the_block_even_when_it_raises(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="inside"), RunLock(tmp_path):
        raise ValueError("inside")
    with RunLock(tmp_path):
        pass
    with RunLock(tmp_path):
        pass


def test_the_lock_is_free_after_the_block_though_a_child_still_has_the_file_open(tmp_path: Path) -> None:
    lock = RunLock(tmp_path)
    with lock:
        # What a fork does: a second descriptor of the same open file.
        assert lock._descriptor is not None
        child_descriptor = os.dup(lock._descriptor)
    try:
        with RunLock(tmp_path):
            pass
    finally:
        os.close(child_descriptor)


def test_a_shorter_owner_line_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    (tmp_path / "run.lock").write_text("x" * 500)
    with RunLock(tmp_path), pytest.raises(HoldfastError, match=f"process {os.getpid()} "), RunLock(tmp_path):
        pytest.fail("locked twice")


def test_an_owner_that_has_not_signed_yet_is_still_respected(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        (tmp_path / "run.lock").write_text("")
        with pytest.raises(HoldfastError, match="in use by another process"), RunLock(tmp_path):
            pytest.fail("locked twice")


def test_a_directory_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match="check that it exists"), RunLock(tmp_path / "absent"):
        pytest.fail("locked nothing")


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    """Whoever made the directory would have another file emptied."""
    other, run = tmp_path / "precious", tmp_path / "run"
    other.write_text("kept")
    run.mkdir()
    (run / "run.lock").symlink_to(other)
    with pytest.raises(HoldfastError, match=r"run\.lock in it is a plain file"), RunLock(run):
        pass
    assert other.read_text() == "kept"
