"""A reward service on a free port of this machine, served by uvicorn in a thread, and what its answers have to be."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

from holdfast.cli.serve import bind, server_config
from holdfast.models.load import load_causal_lm
from holdfast.reward.aggregate import aggregate
from holdfast.reward.ensemble import VersionStore
from holdfast.reward.standalone import build_ensemble
from holdfast.run.directory import RunDirectory
from holdfast.serving.app import create_app
from holdfast.serving.service import ServedVersions, Service
from holdfast.serving.tokens import Tokens
from holdfast.serving.versions import open_run

TOKEN = "asks-0123456789abcdef"
OWNER = "owns-0123456789abcdef"
PATIENCE_SECONDS = 30.0


@dataclass
class Served:
    """A service that runs, and what it has said in its terminal."""

    service: Service
    address: str
    server: Any
    said: list[str] = field(default_factory=list)

    def post(
        self, path: str, document: Any = None, token: str | None = TOKEN, body: bytes | None = None, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        """Status, answer (JSON where it is) and headers of one request."""
        data = json.dumps(document).encode() if body is None else body
        return self._ask(urllib.request.Request(self.address + path, data, self._headers(token, headers)))

    def get(self, path: str, token: str | None = TOKEN) -> tuple[int, Any, dict[str, str]]:
        return self._ask(urllib.request.Request(self.address + path, headers=self._headers(token, {})))

    def _headers(self, token: str | None, more: dict[str, str]) -> dict[str, str]:
        return {**more, **({"Authorization": f"Bearer {token}"} if token is not None else {})}

    def _ask(self, request: urllib.request.Request) -> tuple[int, Any, dict[str, str]]:
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
                status, headers, raw = answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            status, headers, raw = error.code, dict(error.headers), error.read()
        return status, json.loads(raw) if "json" in headers.get("content-type", "") else raw, headers


def serving_rewards(run: Path, **settings: Any) -> contextlib.AbstractContextManager[Served]:
    """The service of a run, as the command line puts it together."""
    return serving_versions(open_run(run), **settings)


@contextlib.contextmanager
def serving_versions(versions: ServedVersions, **settings: Any) -> Iterator[Served]:
    """The service of whatever has versions."""
    said: list[str] = []
    service = Service(versions, say=said.append, **settings)
    listener, address = bind("127.0.0.1", 0)
    server = uvicorn.Server(server_config(create_app(service, Tokens.of(TOKEN, OWNER)), 30))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    end = time.monotonic() + PATIENCE_SECONDS
    while not server.started:
        assert time.monotonic() < end, "the service does not start"
        time.sleep(0.01)
    try:
        yield Served(service, address, server, said)
    finally:
        server.should_exit = True
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


class Wire:
    """A client's own connection, kept open, without a library's overhead: with hundreds of them that is most of it."""

    def __init__(self, address: str) -> None:
        self.host, _, port = address.removeprefix("http://").partition(":")
        self.port = int(port)

    async def __aenter__(self) -> Wire:
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def post(self, path: str, document: Any, token: str = "") -> tuple[int, Any, dict[str, str]]:
        body = json.dumps(document).encode()
        bearer = f"Authorization: Bearer {token}\r\n" if token else ""
        head = f"POST {path} HTTP/1.1\r\nHost: {self.host}\r\n{bearer}Content-Length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        answer = json.loads(await self.reader.readexactly(int(headers["content-length"])))
        return int(lines[0].split()[1]), answer, headers


class Truth:
    """What a version of a run's ensemble says of answers, past the service."""

    def __init__(self, run: Path, version: int) -> None:
        directory = RunDirectory.open(run)
        self.config = directory.config()
        lm, self.codec = load_causal_lm(directory.reference)
        self.ensemble = build_ensemble(self.config, lm, self.codec)
        VersionStore(directory.rewards).load_into(self.ensemble, version)

    def members(self, prompt: Any, response: str) -> list[float]:
        scores_K1 = self.ensemble.scores([self.codec.encode_prompt(prompt)], [self.codec.encode_response(response)])
        return [float(x) for x in scores_K1[:, 0]]

    def raw(self, prompt: Any, response: str) -> list[float]:
        raw_K1 = self.ensemble.raw_scores([self.codec.encode_prompt(prompt)], [self.codec.encode_response(response)])
        return [float(x) for x in raw_K1[:, 0]]

    def score(self, prompt: Any, response: str) -> float:
        return self.scores([(prompt, response)])[0]

    def scores(self, texts: Sequence[tuple[Any, str]]) -> list[float]:
        prompts = [self.codec.encode_prompt(prompt) for prompt, _ in texts]
        scores_KB = self.ensemble.scores(prompts, [self.codec.encode_response(response) for _, response in texts])
        reward = self.config.reward
        return [float(x) for x in aggregate(scores_KB, reward.aggregation)]


def texts_of(run: Path, count: int) -> list[tuple[str, str]]:
    """That many different prompts with answers, made of the words of a run's own samples."""
    rows = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
    prompts = [row["prompt"] for row in rows]
    words = [word for row in rows for word in row["response"].split()]
    return [
        (prompts[i % len(prompts)], " ".join(words[(i * 7 + j) % len(words)] for j in range(1 + (i * 5) % 17)))
        for i in range(count)
    ]
