"""The guard over HTTP: what it finds of scripted trainings, and 200 clients at once while its server is killed.

A server in a process of its own guards hacked trainings, whose reward also pays for flattery, and healthy ones, each
driven by the client as a trainer drives it. Then 200 clients post at once; in the middle the server is killed with
SIGKILL and started again, and what was not acknowledged is posted again.

python -m benchmarks guard_over_http         writes benchmarks/results/guard_over_http.json
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
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
from benchmarks.system.reward_service import Wire, cpu_seconds
from benchmarks.system.scripted_trainer import PROMPTS, SETTINGS, ScriptedTrainer, labeller_in, train
from holdfast.cli.serve import bind
from holdfast.errors import HoldfastError
from holdfast.interop.guard_client import GuardClient
from holdfast.parallel.cores import available

TOKEN = "bench-0123456789abcdef"
STEPS = 24
# Several times as many prompts as an audit has pairs, as the page on it asks for.
AUDITED = [f"What should I see on day {n} of my stay?" for n in range(100)]
FIRST_SEED = 1100


@dataclass
class Server:
    """`holdfast guard serve` on a port that stays the same."""

    directory: Path
    labeller: str
    address: str = field(init=False)

    def __post_init__(self) -> None:
        listener, self.address = bind("127.0.0.1", 0)
        listener.close()

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def start(self) -> float:
        """Start it; the seconds until it listens."""
        began = time.perf_counter()
        command = [sys.executable, "-m", "holdfast.cli.main", "guard", "serve", str(self.directory)]
        command += ["--labeller", self.labeller, "--port", str(self.port), "--json"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "HOLDFAST_GUARD_TOKEN": TOKEN},
        )  # fmt: skip
        assert self.process.stdout is not None
        json.loads(self.process.stdout.readline())
        return time.perf_counter() - began

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def serving(directory: Path) -> Iterator[Server]:
    server = Server(directory / "guard", labeller_in(directory))
    server.start()
    try:
        yield server
    finally:
        server.process.terminate()
        server.process.wait(60)


def guarded(client: GuardClient, hacked: bool, seed: int) -> dict[str, Any]:
    """One training from its first step to its last, and what it came to."""
    trainer, used = ScriptedTrainer(hacked=hacked, seed=seed), time.perf_counter()
    training = client.training(
        f"{'hacked' if hacked else 'healthy'}-{seed}", **{**SETTINGS, "prompts": AUDITED, "seed": seed}
    )
    verdicts = train(training, trainer, STEPS)
    alarms = [verdict for verdict in verdicts if verdict["level"] in ("hacking", "worse")]
    return {
        "seed": seed,
        "verdicts": [verdict["level"] for verdict in verdicts],
        "alarm_in_round": alarms[0]["round"] if alarms else None,
        "named": bool(alarms) and "the component 'tone'" in alarms[0]["sentence"],
        "done": [action["do"] for action in trainer.done],
        "dial_at_the_end": trainer.dial,
        "seconds": time.perf_counter() - used,
    }


async def many(server: Server, clients: int, batches: int) -> dict[str, Any]:
    """All clients at once, each posting so many batches; after half of them the server is killed and started again."""
    acknowledged: list[str] = []
    seconds: list[float] = []
    again = 0
    killed: list[float] = []

    async def client(number: int) -> None:
        nonlocal again
        for turn in range(batches):
            name = f"{number}-{turn}"
            columns = {"prompts": PROMPTS[:4], "answers": ["noon ferry"] * 4, "rewards": [1.0] * 4}
            while True:
                began = time.perf_counter()
                try:
                    async with Wire(server.port) as wire:
                        status, _, _ = await wire.post("/trainings/many/batches", TOKEN, {"id": name, **columns})
                    if status == 200:
                        break
                except (OSError, asyncio.IncompleteReadError, ValueError, IndexError):
                    again += 1
                await asyncio.sleep(0.2)
            acknowledged.append(name)
            seconds.append(time.perf_counter() - began)

    async def death() -> None:
        while len(acknowledged) < clients * batches // 2:
            await asyncio.sleep(0.005)
        server.kill()
        killed.append(await asyncio.to_thread(server.start))

    began, used = time.perf_counter(), 0.0
    await asyncio.gather(death(), *(client(number) for number in range(clients)))
    lasted, used = time.perf_counter() - began, cpu_seconds(server.process.pid)
    state = GuardClient.of(server.address, TOKEN).training("many").look(30)
    ordered = sorted(seconds)
    return {
        "clients": clients,
        "batches": clients * batches,
        "acknowledged": len(set(acknowledged)),
        "stored": state["batches"],
        "answers": state["answers"],
        "sent_again": again,
        "seconds_to_start_again": killed[0],
        "seconds": lasted,
        "p50_ms": 1000.0 * ordered[len(ordered) // 2],
        "p95_ms": 1000.0 * ordered[95 * len(ordered) // 100],
        "cpu_seconds_after_the_kill": used,
    }


def main(words: Sequence[str]) -> int:
    parser = parser_of("guard_over_http", __doc__)
    parser.add_argument("--seeds", type=int, default=10, help="trainings of each kind, from seed 1100 on")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--batches", type=int, default=5, help="batches that each client posts")
    args = parser.parse_args(words)
    rows: dict[str, list[dict[str, Any]]] = {"hacked": [], "healthy": []}
    with tempfile.TemporaryDirectory(prefix="guard-") as scratch, serving(Path(scratch)) as server:
        client = GuardClient.of(server.address, TOKEN)
        for kind, found in rows.items():
            for seed in range(FIRST_SEED, FIRST_SEED + args.seeds):
                found.append(guarded(client, kind == "hacked", seed))
                print(f"{kind:8s} seed {seed}: {', '.join(found[-1]['verdicts'])}", flush=True)
        many_settings = {**SETTINGS, "answers": 64, "every": 10_000, "steps": 10_000}
        training = client.training("many", **many_settings)
        training.settle(ScriptedTrainer(hacked=False).answer)
        load = asyncio.run(many(server, args.clients, args.batches))
        try:
            GuardClient.of(server.address, "another-0123456789").training("many").look()
            stranger = 200
        except HoldfastError as error:
            stranger = 401 if "401" in str(error) else 0
    alarmed = sum(row["alarm_in_round"] is not None for row in rows["hacked"])
    called = sum(row["alarm_in_round"] is not None for row in rows["healthy"])
    named = sum(row["named"] for row in rows["hacked"])
    print(f"\nhacked: {alarmed} of {args.seeds} found, the component named in {named}; healthy: {called} called")
    print(
        f"{load['clients']} clients: {load['acknowledged']} batches acknowledged, {load['stored']} stored, "
        f"{load['sent_again']} sent again; back after {load['seconds_to_start_again']:.1f} s; "
        f"p50 {load['p50_ms']:.0f} ms, p95 {load['p95_ms']:.0f} ms; a stranger gets {stranger}"
    )
    machine = {"cpu": cpu_name(), "cores": available()}
    keep(
        "guard_over_http",
        {
            "machine": machine,
            "settings": {**SETTINGS, "prompts": len(AUDITED)},
            "trainings": rows,
            "load": load,
            "stranger": stranger,
        },
    )
    good = alarmed == args.seeds and called == 0 and load["stored"] == load["batches"] == load["acknowledged"]
    return 0 if good and stranger == 401 else 1
