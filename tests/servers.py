"""What some tests need besides Python: a PostgreSQL server and Chromium, found on this machine and started here.

Where one is missing the tests that need it are skipped, with a line that says so; where CI is set, that is a failure.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

ON_CI = os.environ.get("CI", "").lower() not in ("", "0", "false")


def absent(what: str) -> NoReturn:
    """Skip loudly, or fail where nothing may be skipped."""
    words = f"{what} is not on this machine; `make test-servers` installs it where it may"
    if ON_CI:
        pytest.fail(f"{words} (and with CI set nothing may be skipped)", pytrace=False)
    pytest.skip(words)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def chromium() -> str:
    """The path of a Chromium, or a skip."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    absent("Chromium")


def postgres_programs() -> Path:
    """The directory that holds initdb and postgres, or a skip."""
    if path := shutil.which("initdb"):
        return Path(path).resolve().parent
    for place in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (place / "initdb").is_file():
            return place
    absent("PostgreSQL")


def ordinary_user() -> str | None:
    """PostgreSQL refuses to be run by root; then somebody else has to."""
    return "nobody" if os.geteuid() == 0 else None


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """The URL of a fresh server on a port of this machine; it and all its data go at the end."""
    programs, user = postgres_programs(), ordinary_user()
    directory = Path(tempfile.mkdtemp(prefix="holdfast-pg-"))
    if user:
        shutil.chown(directory, user)
    data, port = directory / "data", free_port()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "user": user, "cwd": directory}
    make = [programs / "initdb", "-D", data, "-U", "holdfast", "--auth=trust", "--no-sync", "-E", "UTF8"]
    try:
        subprocess.run(make, check=True, **quiet)  # type: ignore[call-overload]
        options = f"-p {port} -h 127.0.0.1 -k {directory} -c max_connections=200"
        start = [programs / "pg_ctl", "-D", data, "-w", "-o", options, "start"]
        subprocess.run(start, check=True, **quiet)  # type: ignore[call-overload]
        try:
            yield f"postgresql+psycopg://holdfast@127.0.0.1:{port}/postgres"
        finally:
            stop = [programs / "pg_ctl", "-D", data, "-m", "immediate", "stop"]
            subprocess.run(stop, check=False, **quiet)  # type: ignore[call-overload]
    finally:
        shutil.rmtree(directory, ignore_errors=True)
