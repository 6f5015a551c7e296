"""Eight runs of a sweep over Ray's workers: are they what they are without, and when a worker or a machine dies?

`python -m benchmarks ray_sweep` takes a few minutes on two cores. The runs are tiny and their figures mean
nothing: what counts is that they are equal, bit for bit, however they were worked out.

    processes      two processes of this machine, as without --ray
    workers        two workers of Ray on this machine
    killed worker  the same, one worker killed (SIGKILL) in the middle of a run
    sent back      workers that do not see the driver's directory, and send files back
    killed node    a cluster of two nodes at an address, one of them killed in the middle of a run
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.record import keep, parser_of
from holdfast.cli.tables import show_table
from holdfast.lab.cluster import STORE_BYTES, cluster_at, load_ray
from holdfast.lab.experiment import Plan, Results
from holdfast.lab.experiments import experiment_named
from holdfast.lab.results import QUICK, carry_out
from holdfast.lab.worker import Sign

SEEDS = (1000, 1001)
FILES = ("metrics.jsonl", "gold.jsonl", "samples.jsonl", "config.toml")


def eight(runs: Path) -> Plan:
    """Four values of a knob, two seeds each."""
    experiment = experiment_named("sweep-noise")
    return Plan(experiment, experiment.chosen(only=["no flaw"]), SEEDS, runs, (*QUICK, "ppo.lr=0.02"))


@dataclass(frozen=True)
class Way:
    """How eight runs were worked out, and what came of it."""

    results: Results
    said: list[str]
    seconds: float
    runs: Path

    def measured(self) -> dict[str, Any]:
        """All that was measured, but the clock."""
        told = {str(cell): asdict(trial) for cell, trial in self.results.each()}
        return {k: {n: v for n, v in t.items() if not n.endswith("seconds")} for k, t in told.items()}

    def digest(self) -> str:
        """Of the files that equal runs share."""
        whole = hashlib.sha256()
        for path in sorted(p for name in FILES for p in self.runs.glob(f"trials/*/*/{name}")):
            whole.update(str(path.relative_to(self.runs)).encode() + path.read_bytes())
        return whole.hexdigest()[:16]

    def row(self, plain: Way) -> dict[str, Any]:
        return {
            "runs": len(self.results.trials),
            "failures": list(self.results.failures),
            "equal_measurements": self.measured() == plain.measured(),
            "equal_files": self.digest() == plain.digest(),
            "run_again": sum("it is run again" in line for line in self.said),
            "seconds": round(self.seconds, 1),
        }


def work(runs: Path, carry: Callable[[Plan, Callable[[str], None]], Results]) -> Way:
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        print(f"  {line}", flush=True)

    start = time.perf_counter()
    results = carry(eight(runs), say)
    return Way(results, said, time.perf_counter() - start, runs)


def over_ray(address: str = "", elsewhere: Path | None = None) -> Callable[[Plan, Callable[[str], None]], Results]:
    def carry(plan: Plan, say: Callable[[str], None]) -> Results:
        with cluster_at(address, plan.runs, 2, say) as cluster:
            if elsewhere is None:
                return carry_out(plan, cluster.workers, say, cluster.desk)
            # As if the workers were on machines that do not see the directory.
            apart = replace(cluster, sign=Sign(elsewhere, cluster.sign.secret))
            try:
                return carry_out(plan, apart.workers, say, apart.desk)
            finally:
                shutil.rmtree(apart.sign.room, ignore_errors=True)

    return carry


def in_the_middle(runs: Path, strike: Callable[[int], None]) -> threading.Thread:
    """A thread that strikes the first worker that is seen in the middle of a run."""

    def watch() -> None:
        until = time.monotonic() + 600
        while time.monotonic() < until:
            for lock in runs.glob("trials/*/*/run.lock"):
                metrics = lock.with_name("metrics.jsonl")
                if metrics.is_file() and metrics.stat().st_size and not lock.with_name("trial.json").exists():
                    strike(json.loads(lock.read_text())["pid"])
                    return
            time.sleep(0.01)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def with_a_node_killed(work_in: Path) -> Way:
    """Two nodes of one core each, and the one that the first worker belongs to is killed."""
    load_ray()
    from ray.cluster_utils import Cluster as NodesOnThisMachine

    small = {"object_store_memory": STORE_BYTES, "include_dashboard": False}
    nodes = NodesOnThisMachine(initialize_head=True, head_node_args={"num_cpus": 0, **small})
    added = [nodes.add_node(num_cpus=1, object_store_memory=STORE_BYTES) for _ in range(2)]
    runs = work_in / "node"

    def strike(pid: int) -> None:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        for node in added:
            if parent in {p.process.pid for ps in node.all_processes.values() for p in ps}:
                nodes.remove_node(node, allow_graceful=False)
                return

    try:
        in_the_middle(runs, strike)
        return work(runs, over_ray(nodes.address))
    finally:
        nodes.shutdown()


def main(words: Sequence[str]) -> None:
    parser = parser_of("ray_sweep", __doc__)
    parser.parse_args(words)
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        ways = {"processes": work(home / "plain", lambda plan, say: carry_out(plan, 2, say))}
        ways["workers"] = work(home / "ray", over_ray())
        in_the_middle(home / "killed", lambda pid: os.kill(pid, signal.SIGKILL))
        ways["killed worker"] = work(home / "killed", over_ray())
        ways["sent back"] = work(home / "back", over_ray(elsewhere=home / "nowhere"))
        ways["killed node"] = with_a_node_killed(home)
        rows = {name: way.row(ways["processes"]) for name, way in ways.items()}
    columns = list(rows["processes"])
    show_table("Eight runs", ["", *columns], [[name, *(str(row[c]) for c in columns)] for name, row in rows.items()])
    equal = all(row["equal_measurements"] and row["equal_files"] and row["runs"] == 8 for row in rows.values())
    print("\nAll ways come to the same, bit for bit." if equal else "\nTHEY DIFFER.")
    keep("ray_sweep", {"seeds": list(SEEDS), "cores": os.cpu_count(), "ways": rows, "all_equal": equal})
