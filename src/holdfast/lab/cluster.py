"""Trials over a cluster, through Ray. A worker or a machine that dies costs its trial another try, never the trial.

    jobs -> desks (one for each trial under way) -> Ray -> workers -> the driver's directory -> read there

Every result is read from the driver's directory by the code that reads a trial of this machine, and a trial is in
there whole or not at all: so none is lost, and none counts twice.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError, first_line
from holdfast.lab.runner import TrialOutcome, read_ended
from holdfast.lab.trial import Job, ended
from holdfast.lab.worker import Sign, look_around, order_of, tidy_up, unpack, versions, work_on

# A trial whose worker has died this many times is given up, and told of.
ATTEMPTS = 4
# Trials send back a megabyte or two, and nothing else goes through Ray's store.
STORE_BYTES = 200 * 2**20
CONNECT_SECONDS = 5.0
PROBE_SECONDS = 120.0
TIDY_SECONDS = 20.0
# How long a file may take to be seen by another machine of a shared file system, whose directories are cached.
VISIBLE_SECONDS = 60.0


@dataclass(frozen=True)
class Cluster:
    """Where trials are sent: as many at a time as there are cores, or as the user has said."""

    ray: Any
    sign: Sign
    workers: int
    say: Callable[[str], None]

    def desk(self) -> RayDesk:
        return RayDesk(self)


class RayDesk:
    """Has one trial after another done by some worker of the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        # Our own count of tries, and not Ray's: each one is told of, and none goes on after a Ctrl-C.
        self._work = cluster.ray.remote(num_cpus=1, max_retries=0)(work_on)
        self._closed = False

    def do(self, job: Job) -> TrialOutcome:
        why = ""
        for attempt in range(1, ATTEMPTS + 1):
            if self._closed:
                break
            try:
                answer = self._answer(order_of(job, self._cluster.sign))
            except _Lost as lost:
                why = str(lost)
                if attempt < ATTEMPTS and not self._closed:
                    self._cluster.say(f"{job.name or job.path.name}: {why}; it is run again ({attempt + 1}/{ATTEMPTS})")
                continue
            except HoldfastError as error:
                return TrialOutcome(job, None, str(error))
            return self._received(job, *answer)
        if self._closed:
            return TrialOutcome(job, None, "stopped; the same command goes on with it.")
        return TrialOutcome(job, None, f"{why}, {ATTEMPTS} times; the same command goes on with it.")

    def close(self) -> None:
        self._closed = True

    def _answer(self, order: str) -> tuple[str, bytes]:
        """What a worker says in the end."""
        errors = self._cluster.ray.exceptions
        try:
            record, files = self._wait_for(self._work.remote(order))
        except errors.RayTaskError as error:
            raise HoldfastError(f"The worker could not begin: {cause_of(error)}") from None
        except errors.RayError as error:
            raise _Lost(f"its worker died ({type(error).__name__})") from None
        return record, files

    def _wait_for(self, asked: Any) -> Any:
        """Looks up now and then, so that a Ctrl-C is noticed."""
        ray, waited = self._cluster.ray, 0
        while not ray.wait([asked], timeout=0.5)[0]:
            waited += 1
            if self._closed:
                ray.cancel(asked, force=True)
                raise _Lost("stopped")
            if waited % 60 == 0 and not ray.cluster_resources().get("CPU"):
                raise HoldfastError("No worker of the cluster is left; the same command goes on with it.")
        return ray.get(asked)

    def _received(self, job: Job, record: str, files: bytes) -> TrialOutcome:
        answer = json.loads(record)
        if answer["failure"]:
            return TrialOutcome(job, None, answer["failure"])
        if not answer["shared"]:
            try:
                unpack(files, job.path)
            except HoldfastError as error:
                return TrialOutcome(job, None, str(error))
        until = time.monotonic() + VISIBLE_SECONDS
        while not ended(job.path):
            if time.monotonic() > until:
                return TrialOutcome(
                    job, None, f"{answer['host']} says it has ended, but it is not to be seen in {job.path}."
                )
            time.sleep(0.2)
        return read_ended(job)


class _Lost(Exception):
    """A worker is gone and its trial with it."""


@contextmanager
def cluster_at(address: str, runs: Path, workers: int | None, say: Callable[[str], None]) -> Iterator[Cluster]:
    """Ray, connected or started; left in every case, and stopped if it was started here.

    An empty address starts workers on this machine. Nothing is written before the cluster has answered.
    """
    ray = load_ray()
    os.environ["OMP_NUM_THREADS"] = "1"  # a core for each trial, as without a cluster
    sign = Sign(runs.absolute(), secrets.token_hex(16))
    with contextlib.ExitStack() as stack:
        # Ray tells of workers that died on standard output, which is for results.
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        if address:
            connect(ray, address)
            stack.callback(ray.shutdown)
        else:
            start_here(ray, workers or 2, stack)
        sign.put_up()
        stack.callback(sign.take_down)
        if not address:
            say(f"Ray: {workers or 2} workers on this machine")
            yield Cluster(ray, sign, workers or 2, say)
            return
        stack.callback(partial(leave_tidy, ray, sign))
        seen = check_nodes(ray, sign)
        cores = int(ray.cluster_resources().get("CPU", 0))
        if cores < 1:
            raise HoldfastError(f"The cluster at {address} has no core to work with; add a node with num-cpus above 0.")
        say(f"Ray at {address}: {len(seen)} machines, {cores} cores; {how_they_see(seen, runs)}")
        yield Cluster(ray, sign, workers or cores, say)


def load_ray() -> Any:
    """Ray, quiet and without its statistics."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # A trial is as urgent as one in a process of our own; Ray would have it wait for everything else.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # Later versions change what happens to GPU variables, and warn until one has chosen. No trial asks for a GPU.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise HoldfastError("--ray needs Ray, which is not installed: `pip install 'holdfast-rl[ray]'`.") from error
    return ray


def connect(ray: Any, address: str) -> None:
    """Join a cluster that is there."""
    if address != "auto":
        host, colon, port = address.rpartition(":")
        if not colon or "/" in address or not port.isdigit():
            raise HoldfastError(
                f"--ray {address} is neither auto nor HOST:PORT; `ray status` shows a cluster's address."
            )
        try:
            socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise HoldfastError(
                f"There is no Ray cluster at {address} ({first_line(error)[:-1]}); start one with `ray start --head`, "
                "or give --ray without an address."
            ) from error
    try:
        ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    except (ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError) as error:
        raise HoldfastError(f"The Ray cluster at {address} cannot be joined: {first_line(error)}") from error


def start_here(ray: Any, workers: int, stack: contextlib.ExitStack) -> None:
    """Workers on this machine, with a small store and no dashboard; their files go when they do."""
    # In /tmp: Ray's sockets lie in there, and the path of a socket has to be short.
    home = tempfile.mkdtemp(prefix="hf-ray-", dir="/tmp" if Path("/tmp").is_dir() else None)
    stack.callback(partial(shutil.rmtree, home, ignore_errors=True))
    stack.callback(ray.shutdown)
    try:
        ray.init(
            address="local", num_cpus=workers, num_gpus=0, object_store_memory=STORE_BYTES, include_dashboard=False,
            logging_level="ERROR", log_to_driver=False, _temp_dir=home,
        )  # fmt: skip
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise HoldfastError(f"Ray cannot be started here: {first_line(error)}") from error


def check_nodes(ray: Any, sign: Sign) -> dict[str, bool]:
    """Whether each machine sees the driver's directory; refuses one whose results could differ from ours."""
    seen = {}
    for host, told in on_every_node(ray, look_around, sign):
        if told is None:
            raise HoldfastError(
                f"The machine {host} of the cluster cannot run holdfast; install holdfast[ray] "
                f"{versions()['holdfast']} there."
            )
        answer = json.loads(told)
        if differing := {n: v for n, v in answer["versions"].items() if v != versions()[n]}:
            name, found = next(iter(differing.items()))
            raise HoldfastError(
                f"The machine {host} has {name} {found} and this one {versions()[name]}; equal results need equal "
                "versions."
            )
        seen[host] = bool(answer["shared"])
    return seen


def on_every_node(
    ray: Any, task: Callable[[str], Any], sign: Sign, seconds: float = PROBE_SECONDS
) -> Iterator[tuple[str, Any]]:
    """A task once on each machine that is up, with what came of it; None where it failed."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    order = json.dumps({"runs": str(sign.runs), "secret": sign.secret})
    asked = []
    for node in ray.nodes():
        if node["Alive"]:
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            remote = ray.remote(num_cpus=0, max_retries=2, scheduling_strategy=there)(task)
            name = f"{node['NodeManagerHostname']} ({node['NodeID'][:6]})"
            asked.append((name, remote.remote(order)))
    for host, reference in asked:
        try:
            yield host, ray.get(reference, timeout=seconds)
        except ray.exceptions.RayError:
            yield host, None


def leave_tidy(ray: Any, sign: Sign) -> None:
    """Have machines that kept trials for themselves remove what is left of them."""
    with contextlib.suppress(ray.exceptions.RayError, ConnectionError, RuntimeError):
        for _ in on_every_node(ray, tidy_up, sign, TIDY_SECONDS):
            pass


def how_they_see(seen: dict[str, bool], runs: Path) -> str:
    blind = [host for host, shared in seen.items() if not shared]
    if not blind:
        return f"all of them see {runs}, and work on trials there"
    which = "none of them sees" if len(blind) == len(seen) else f"{', '.join(blind)} cannot see"
    return f"{which} {runs}: trials are worked on in their own temporary directories, and their files sent back"


def cause_of(error: BaseException) -> str:
    """The last line of a worker's traceback, which says what went wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__).rstrip(".") + "."
