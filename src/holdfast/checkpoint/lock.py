"""One trainer per run directory."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from holdfast.checkpoint.files import write_all
from holdfast.documents import json_of
from holdfast.errors import HoldfastError

LOCK_FILE = "run.lock"


class RunLock:
    """Holds `run.lock` while the block runs; the system frees it when its process dies, however it dies."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._descriptor: int | None = None

    def __enter__(self) -> RunLock:
        try:
            descriptor = os.open(self.directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise HoldfastError(
                f"The run directory {self.directory} cannot be locked ({error.strerror}); check that "
                f"it exists, that you may write to it, and that {LOCK_FILE} in it is a plain file."
            ) from error
        try:
            self._acquire(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            # Unlocked, not only closed: a forked child may still have the file open. The file stays, because
            # removing it would let two later processes lock two different files of one name.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = None

    def _acquire(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise HoldfastError(
                f"The run directory {self.directory} is in use by {_owner(descriptor)}; wait until it ends "
                "or stop it, or choose another run directory."
            ) from error
        except OSError as error:
            raise HoldfastError(
                f"The file system of {self.directory} cannot lock files ({error.strerror}); use a local one."
            ) from error
        os.ftruncate(descriptor, 0)
        owner = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        write_all(descriptor, json.dumps(owner).encode("utf-8"))


def is_locked(directory: Path) -> bool:
    """Whether a trainer is at work in a run directory."""
    try:
        with (directory / LOCK_FILE).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _owner(descriptor: int) -> str:
    try:
        owner = json_of(os.pread(descriptor, 4096, 0))
        return f"process {owner['pid']} on {owner['host']} (since {owner['started']})"
    except (ValueError, KeyError, TypeError):
        # The owner has the lock but has not written its line yet.
        return "another process"
