"""`holdfast serve` in a process of its own, and people with sessions in its database."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import forked
import tally
from holdfast.people.accounts import Account, AccountStore, Role
from holdfast.preferences.database import Database
from web_site import PASSWORD, QUICK

PATIENCE_SECONDS = 90.0


class Server:
    """A server process that can be killed and started again on the same port."""

    def __init__(self, run: Path, port: int = 0) -> None:
        self.run, self.port = run, port
        self.address = ""
        self.process: BaseProcess | None = None
        self.output = run.parent / f"{run.name}-server.txt"

    def start(self) -> None:
        self.output.unlink(missing_ok=True)
        self.process = forked.start(["serve", str(self.run), "--port", str(self.port)], self.output)
        end = time.monotonic() + PATIENCE_SECONDS
        while not self._answers():
            assert self.process.is_alive(), self.printed
            assert time.monotonic() < end, "the server does not answer"
            time.sleep(0.05)

    @property
    def printed(self) -> str:
        return self.output.read_text(encoding="utf-8") if self.output.exists() else ""

    def _answers(self) -> bool:
        place = re.search(r"http://127\.0\.0\.1:(\d+)", self.printed)
        if place is None:
            return False
        self.address, self.port = place[0], int(place[1])
        try:
            with urllib.request.urlopen(f"{self.address}/login", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        """As a power cut would: without a word."""
        assert self.process is not None
        tally.count("server kills")
        self.process.kill()
        self.process.join()

    def interrupt(self) -> int | None:
        """Ctrl-C; returns the exit code."""
        assert self.process is not None
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGINT)
        self.process.join(PATIENCE_SECONDS)
        return self.process.exitcode

    def stop(self) -> None:
        if self.process is not None and self.process.is_alive():
            self.process.terminate()
            self.process.join(20)
            self.kill()


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
