"""The reward service under 200 clients: requests a second, how long each waits, and what a swap of versions costs.

A small run makes three versions of an ensemble of the built-in size. `holdfast serve-reward` serves it in a process of
its own, and clients in this one ask as OpenRLHF does: one answer a request, the next when the last has come back.
Every answer is compared with the ensemble's own score of that text by that version.

python -m benchmarks reward_service         writes benchmarks/results/serve_reward.json
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.record import cpu_name, keep, parser_of
from holdfast.cli.main import main as holdfast
from holdfast.parallel.cores import available
from holdfast.serving.encoder import AnswerToScore
from holdfast.serving.scorer import ScoredRequest
from holdfast.serving.versions import open_run

SETTINGS = (
    "run.rounds=3", "run.steps_per_round=1", "sft.epochs=1", "world.options={prompts = 256, demonstrations = 256}",
    "reward.initial_comparisons=200", "reward.epochs=1", "preferences.per_round=40", "gate.use=false", "guard.mode=off",
    "probes.every=0", "run.seed=0",
)  # fmt: skip
TOKEN, OWNER = "bench-0123456789abcdef", "owner-0123456789abcdef"
NEAR = 1e-3


@dataclass
class Seen:
    """What the clients of one setting have seen."""

    seconds: list[float] = field(default_factory=list)
    failed: int = 0
    wrong: int = 0
    versions: set[int] = field(default_factory=set)
    swaps: list[float] = field(default_factory=list)

    def figures(self, lasted: float) -> dict[str, Any]:
        ordered = sorted(self.seconds)
        at = {f"p{q}_ms": 1000.0 * ordered[min(len(ordered) - 1, q * len(ordered) // 100)] for q in (50, 95, 99)}
        return {
            "requests": len(ordered),
            "requests_a_second": len(ordered) / lasted,
            **at,
            "longest_ms": 1000.0 * ordered[-1],
            "failed": self.failed,
            "wrong": self.wrong,
            "versions": sorted(self.versions),
            "swaps": len(self.swaps),
            "swap_seconds": max(self.swaps, default=0.0),
        }


class Wire:
    """A client's own connection, kept open, without a library's overhead."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> Wire:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def post(self, path: str, token: str, document: Any) -> tuple[int, Any, int]:
        """Status, answer, and the version that gave it."""
        body = json.dumps(document).encode()
        head = f"POST /t/{token}{path} HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        answer = json.loads(await self.reader.readexactly(int(headers["content-length"])))
        return int(lines[0].split()[1]), answer, int(headers.get("x-holdfast-version", 0))


@contextlib.contextmanager
def serving(run: Path) -> Iterator[tuple[int, int]]:
    """The service as a user starts it; its port and process."""
    command = [sys.executable, "-m", "holdfast.cli.main", "serve-reward", str(run), "--port", "0", "--follow", "0"]
    tokens = {"HOLDFAST_REWARD_TOKEN": TOKEN, "HOLDFAST_REWARD_OWNER_TOKEN": OWNER, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, **tokens}
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r":(\d+)$", line.strip())
    if found is None:
        raise SystemExit(f"the service did not start: {line}")
    try:
        yield int(found[1]), process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def cpu_seconds(process: int) -> float:
    """Processor time that a process has used: unlike the clock's, it says the same on a machine that others use too."""
    stat = Path(f"/proc/{process}/stat")
    if not stat.is_file():
        return float("nan")
    fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(
    port: int, texts: Sequence[tuple[str, str]], truth: dict[int, list[float]], clients: int, seconds: float, swap: bool
) -> dict[str, Any]:
    """All clients for a while, and where asked for a new version every second."""
    seen, end = Seen(), time.perf_counter() + seconds

    async def client(number: int) -> None:
        turn = number
        async with Wire(port) as wire:
            while time.perf_counter() < end:
                place = turn % len(texts)
                prompt, response = texts[place]
                asked = {"query": [prompt + "\n" + response], "prompts": [prompt + "\n"], "labels": [None]}
                began = time.perf_counter()
                status, answer, version = await wire.post("/get_reward", TOKEN, asked)
                seen.seconds.append(time.perf_counter() - began)
                seen.versions.add(version)
                seen.failed += status != 200
                seen.wrong += status == 200 and not abs(answer["rewards"][0] - truth[version][place]) < NEAR
                turn += clients

    async def swaps() -> None:
        async with Wire(port) as wire:
            for turn in range(1, 1000):
                await asyncio.sleep(1.0)
                if time.perf_counter() > end:
                    return
                began = time.perf_counter()
                status, _, _ = await wire.post("/versions", OWNER, {"version": 1 + turn % 3})
                seen.swaps.append(time.perf_counter() - began)
                seen.failed += status != 200

    began = time.perf_counter()
    await asyncio.gather(*(client(number) for number in range(clients)), *([swaps()] if swap else []))
    return {"clients": clients, "swapping": swap, **seen.figures(time.perf_counter() - began)}


def truth_of(run: Path, texts: Sequence[tuple[str, str]]) -> dict[int, list[float]]:
    """What each version has to say of each text, past the service's queue and HTTP."""
    source, found = open_run(run), {}
    for version in source.numbers():
        (scored,) = source.load(version).answer([[AnswerToScore(p + "\n", r) for p, r in texts]]).outcomes
        assert isinstance(scored, ScoredRequest)
        found[version] = scored.scores
    return found


def texts_of(run: Path) -> list[tuple[str, str]]:
    """Prompts and answers of the run, and mixtures of their words of other lengths."""
    rows = [json.loads(line) for line in (run / "samples.jsonl").read_text(encoding="utf-8").splitlines()]
    words = [word for row in rows for word in row["response"].split()]
    return [
        (rows[i % len(rows)]["prompt"], " ".join(words[(i * 7 + j) % len(words)] for j in range(8 + (i * 5) % 33)))
        for i in range(600)
    ]


def main(words: Sequence[str]) -> None:
    parser = parser_of("reward_service", __doc__)
    parser.add_argument("--seconds", type=float, default=15.0, help="how long each setting is measured")
    parser.add_argument("--clients", type=int, default=200)
    args = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="serve-reward-") as scratch:
        words = [word for setting in SETTINGS for word in ("--set", setting)]
        if holdfast(["run", "--runs", scratch, "--name", "served", *words]) != 0:
            raise SystemExit("the run failed")
        run = Path(scratch) / "served"
        texts = texts_of(run)
        truth = truth_of(run, texts)
        load_before = os.getloadavg()[0]
        rows = []
        with serving(run) as (port, process):
            for clients, swap in ((1, False), (args.clients, False), (args.clients, True)):
                used = cpu_seconds(process)
                row = asyncio.run(measure(port, texts, truth, clients, args.seconds, swap))
                rows.append({**row, "cpu_ms_a_request": 1000.0 * (cpu_seconds(process) - used) / row["requests"]})
    print(
        "\nclients  swapping  requests/s   p50 ms   p95 ms   p99 ms  failed  wrong  swaps  longest swap s  CPU ms each"
    )
    for row in rows:
        print(
            f"{row['clients']:7d}  {row['swapping']!s:8s}  {row['requests_a_second']:10.0f}  {row['p50_ms']:7.1f}  "
            f"{row['p95_ms']:7.1f}  {row['p99_ms']:7.1f}  {row['failed']:6d}  {row['wrong']:5d}  {row['swaps']:5d}  "
            f"{row['swap_seconds']:14.2f}  {row['cpu_ms_a_request']:14.2f}"
        )
    machine = {"cpu": cpu_name(), "cores": available(), "load_average_before": load_before}
    keep("serve_reward", {"machine": machine, "settings": list(SETTINGS), "rows": rows})
