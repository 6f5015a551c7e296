"""`holdfast serve` in a process of its own, as a user starts it, and people with sessions in its database."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from holdfast.people.accounts import Account, AccountStore, Role
from holdfast.preferences.database import Database
from web_site import PASSWORD, QUICK

PATIENCE_SECONDS = 90.0


class Server:
    """A server process that can be killed and started again on the same port."""

    def __init__(self, run: Path, port: int = 0) -> None:
        self.run, self.port = run, port
        self.address = ""
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "holdfast.cli.main", "serve", str(self.run), "--port", str(self.port)]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        # Tests that are run in the background ignore Ctrl-C, and the server would inherit that.
        heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, preexec_fn=heeds)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert found, line
        self.address, self.port = found[0], int(found[1])
        end = time.monotonic() + PATIENCE_SECONDS
        while not self._answers():
            assert time.monotonic() < end, "the server does not answer"
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.address}/login", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        """As a power cut would: without a word."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()


@contextlib.contextmanager
def serving(run: Path) -> Iterator[Server]:
    server = Server(run)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def sessions(url: str, **people: Role) -> dict[str, str]:
    """Accounts with a token each, made past the server, since logging in is slow on purpose."""
    database = Database(url)
    try:
        accounts = AccountStore(database, hasher=QUICK)
        made: dict[str, Account] = {name: accounts.create(name, PASSWORD, role) for name, role in people.items()}
        return {name: accounts.open_session(account)[0] for name, account in made.items()}
    finally:
        database.close()
