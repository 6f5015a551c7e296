"""A guard's server that is killed in the middle of things goes on where it was, and comes to the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from benchmarks.system.scripted_trainer import SETTINGS, ScriptedTrainer, labeller_in, train

from guard_server import TOKEN, events_of, serving_guard
from holdfast.cli.serve import bind
from holdfast.interop.guard_client import GuardClient, GuardedTraining

# After so many requests of a kind: in the middle of the baselines and of a round, between two needs of a review, when
# the rollback is reported and the rest of the advice is not, and when everything is over but the end.
KILLS = {("batches", 2), ("batches", 7), ("answers", 2), ("answers", 3), ("actions", 1), ("batches", 12)}


class Mortal:
    """A server in a process of its own, on a port that stays the same."""

    def __init__(self, directory: Path, labeller: str) -> None:
        listener, address = bind("127.0.0.1", 0)
        listener.close()
        self.address = address
        self.command = [
            sys.executable, "-m", "holdfast.cli.main", "guard", "serve", str(directory), "--labeller", labeller,
            "--port", address.rpartition(":")[2], "--json",
        ]  # fmt: skip
        self.deaths = 0
        self.start()

    def start(self) -> None:
        environment = {**os.environ, "HOLDFAST_GUARD_TOKEN": TOKEN}
        self.process = subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        assert self.process.stdout is not None
        assert json.loads(self.process.stdout.readline())["address"] == self.address

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.deaths += 1

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(60)


class KillingClient(GuardClient):
    """Kills the server after some of its replies; what a batch's sender has no reply to it sends again."""

    server: Mortal
    counts: Counter[str]

    def ask(self, method: str, path: str, document: Mapping[str, Any] | None = None) -> dict[str, Any]:
        reply = super().ask(method, path, document)
        kind = path.partition("?")[0].rpartition("/")[2]
        self.counts[kind] += method == "POST"
        if method == "POST" and (kind, self.counts[kind]) in KILLS:
            self.server.kill()
            self.server.start()
            if kind == "batches":
                assert super().ask(method, path, document)["new"] is False, "it was stored before it was acknowledged"
        return reply


def numbered(trainer: ScriptedTrainer) -> Any:
    """Batches with ids that a client which was killed itself would give again."""
    plain = trainer.batch
    return lambda: {**plain(), "id": f"step-{trainer.step}"}


def what_happened(directory: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "time"} for row in events_of(directory) if row["event"] != "resumed"]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_server_that_is_killed_again_and_again_comes_to_the_same(tmp_path: Path) -> None:
    labeller, steps = labeller_in(tmp_path), 12
    with serving_guard(tmp_path / "whole", labeller) as served:
        unbroken = ScriptedTrainer(hacked=True, seed=1010)
        unbroken.batch = numbered(unbroken)  # type: ignore[method-assign]
        expected = train(served.client().training("t", **SETTINGS), unbroken, steps)
    server = Mortal(tmp_path / "killed", labeller)
    client = KillingClient(server.address, TOKEN)
    object.__setattr__(client, "server", server)
    object.__setattr__(client, "counts", Counter())
    trainer = ScriptedTrainer(hacked=True, seed=1010)
    trainer.batch = numbered(trainer)  # type: ignore[method-assign]
    training: GuardedTraining = client.training("t", **SETTINGS)
    got = train(training, trainer, steps)
    assert server.deaths == len(KILLS)
    assert server.end() == 130
    assert got == expected
    assert (training.state["batches"], training.state["answers"]) == (steps, steps * 32)
    assert [a["id"] for a in trainer.done] == [a["id"] for a in unbroken.done]
    whole, killed = tmp_path / "whole" / "t", tmp_path / "killed" / "t"
    assert (killed / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert what_happened(killed) == what_happened(whole)
