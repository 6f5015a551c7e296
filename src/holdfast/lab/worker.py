"""What a worker of a cluster does: a trial in the driver's directory where it sees that, else in one of its own.

An order and a record are JSON, and files come back as a zip archive: nothing of ours that crosses machines is code.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import tempfile
import zipfile
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import Any

from holdfast import __version__
from holdfast.checkpoint.lock import LOCK_FILE, RunLock
from holdfast.errors import HoldfastError
from holdfast.lab.runner import failure_of
from holdfast.lab.trial import Job, run_trial


@dataclass(frozen=True)
class Sign:
    """A file with a secret in the driver's directory: who reads the secret there sees the same file system."""

    runs: Path
    secret: str

    @property
    def file(self) -> Path:
        return self.runs / f".shared-{self.secret[:8]}"

    @property
    def room(self) -> Path:
        """Where a machine that does not see the driver's directory works on this sweep's trials."""
        return Path(tempfile.gettempdir()) / f"holdfast-{self.secret}"

    def put_up(self) -> None:
        self.runs.mkdir(parents=True, exist_ok=True)
        self.file.write_text(self.secret, encoding="utf-8")

    def take_down(self) -> None:
        self.file.unlink(missing_ok=True)

    def seen(self) -> bool:
        try:
            return self.file.read_text(encoding="utf-8") == self.secret
        except OSError:
            return False


def order_of(job: Job, sign: Sign) -> str:
    """A job as a text, with absolute paths."""
    here = {name: str(path.absolute()) for name, path in (("path", job.path), ("references", job.references)) if path}
    fields = asdict(job) | {"overrides": list(job.overrides), "references": None} | here
    return json.dumps({"job": fields, "runs": str(sign.runs), "secret": sign.secret, "from": str(Path.cwd())})


def work_on(order: str) -> tuple[str, bytes]:
    """A whole trial, or what is left of one that was cut here; a record and, where nobody else sees them, its files."""
    request: dict[str, Any] = json.loads(order)
    sign = Sign(Path(request["runs"]), request["secret"])
    job = Job(
        **request["job"]
        | {name: request["job"][name] and Path(request["job"][name]) for name in ("path", "references")}
    )
    if Path(request["from"]).is_dir():
        os.chdir(request["from"])  # a world or a flaw in a file may be named from there
    shared = sign.seen()
    if not shared:
        # Named by the trial, not at random: after this worker has died, the next one on this machine goes on there.
        own = sign.room / "trials" / job.path.parent.name / job.path.name
        job = replace(job, path=own, references=sign.room / "references" if job.references else None)
    record: dict[str, Any] = {"shared": shared, "host": socket.gethostname(), "failure": ""}
    try:
        run_trial(job)
    except Exception as error:  # noqa: BLE001 - whatever it is, the driver has to hear of it
        # Told as a sentence: an exception would have to be unpickled where it arrives.
        return json.dumps(record | {"failure": failure_of(error)}), b""
    if shared:
        return json.dumps(record), b""
    files = packed(job.path)
    shutil.rmtree(job.path, ignore_errors=True)
    return json.dumps(record), files


def look_around(order: str) -> str:
    """What a machine has to say before it gets work: its versions, and whether it sees the driver's directory."""
    request = json.loads(order)
    sign = Sign(Path(request["runs"]), request["secret"])
    return json.dumps({"host": socket.gethostname(), "shared": sign.seen(), "versions": versions()})


def tidy_up(order: str) -> None:
    """Remove what this machine kept for itself."""
    request = json.loads(order)
    shutil.rmtree(Sign(Path(request["runs"]), request["secret"]).room, ignore_errors=True)


def versions() -> dict[str, str]:
    """What has to be equal for results to be equal."""
    versions = {"holdfast": __version__}
    for name in ("torch", "transformers"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "none"
    return versions


def packed(run: Path) -> bytes:
    """The files of a trial that has ended, as a zip archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(run.rglob("*")):
            if file.is_file() and file.name != LOCK_FILE and not file.name.startswith(".tmp-"):
                archive.write(file, file.relative_to(run).as_posix())
    return buffer.getvalue()


def unpack(files: bytes, run: Path) -> None:
    """Put a trial's files in their place, all or none; what a cut trial had left there goes."""
    temporary = run.with_name(f".tmp-{run.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    with zipfile.ZipFile(io.BytesIO(files)) as archive:
        for name in archive.namelist():
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise HoldfastError(f"A worker sent a file that would lie outside its trial: {name!r}.")
        archive.extractall(temporary)
    if run.exists():
        with RunLock(run):  # nobody else is at work on it
            shutil.rmtree(run)
    temporary.rename(run)
