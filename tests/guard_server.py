"""A guard's server on a free port of this machine."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from holdfast.cli.serve import bind, server_config
from holdfast.interop.guard_client import GuardClient
from holdfast.serving.guard.app import create_app
from holdfast.serving.guard.service import GuardService
from holdfast.serving.tokens import Tokens

TOKEN = "guards-0123456789abcdef"
PATIENCE_SECONDS = 60.0


@dataclass
class ServedGuard:
    """A server that runs in a thread, and what it has said."""

    service: GuardService
    address: str
    said: list[str]

    def client(self, **settings: Any) -> GuardClient:
        return GuardClient.of(self.address, TOKEN, **settings)


@contextlib.contextmanager
def serving_guard(directory: Path, labeller: str, **settings: Any) -> Iterator[ServedGuard]:
    """A server as the command line puts it together."""
    said: list[str] = []
    service = GuardService(directory, labeller, say=said.append, **settings)
    listener, address = bind("127.0.0.1", 0)
    server = uvicorn.Server(server_config(create_app(service, Tokens.of(TOKEN)), 5))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    end = time.monotonic() + PATIENCE_SECONDS
    while not server.started:
        assert time.monotonic() < end, "the server does not start"
        time.sleep(0.01)
    try:
        yield ServedGuard(service, address, said)
    finally:
        server.should_exit = True
        thread.join(PATIENCE_SECONDS)
        service.close()
        assert not thread.is_alive()


def events_of(directory: Path, *kinds: str) -> list[dict[str, Any]]:
    """What a training's directory says has happened."""
    rows = [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]
    return [row for row in rows if not kinds or row["event"] in kinds]
