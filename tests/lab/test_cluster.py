"""Trials over Ray: the same results as without, a killed worker's trial run again, none lost and none counted twice."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
import time
import types
import zipfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.lab import cluster as cluster_module
from holdfast.lab import worker as worker_module
from holdfast.lab.cluster import ATTEMPTS, Cluster, RayDesk, cluster_at, connect, how_they_see
from holdfast.lab.experiment import Plan, Results
from holdfast.lab.experiments import experiment_named
from holdfast.lab.results import QUICK, carry_out, command_of
from holdfast.lab.runner import TrialOutcome
from holdfast.lab.trial import Job, Trial, run_trial
from holdfast.lab.worker import Sign, order_of, packed, tidy_up, unpack, work_on
from made_trials import trial

SETTINGS = (*QUICK, "run.rounds=2", "run.steps_per_round=1", "ppo.lr=0.02", "audit.pairs=0", "audit.more_pairs=0")


class Here:
    """A desk in this process."""

    def do(self, job: Job) -> TrialOutcome:
        return TrialOutcome(job, run_trial(job))

    def close(self) -> None:
        pass


CLOCK = dict.fromkeys(("seconds", "cpu_seconds", "prepared_seconds", "prepared_cpu_seconds"))


def four(runs: Path) -> Plan:
    experiment = replace(experiment_named("sweep-noise"), heldout=8)
    return Plan(experiment, experiment.chosen(only=["no flaw"]), (5,), runs, SETTINGS)


def measured(results: Results) -> dict[str, Any]:
    """All that was measured but the clock's."""
    assert not results.failures
    told = {str(cell): asdict(found) for cell, found in results.each()}
    return {name: {k: v for k, v in fields.items() if not k.endswith("seconds")} for name, fields in told.items()}


def files_of(runs: Path) -> dict[str, bytes]:
    """The files of all trials that two equal trials share."""
    return {
        str(path.relative_to(runs)): path.read_bytes()
        for name in ("metrics.jsonl", "gold.jsonl", "samples.jsonl", "config.toml")
        for path in sorted(runs.glob(f"trials/*/*/{name}"))
    }


class Killer(threading.Thread):
    """Kills the first worker that is seen in the middle of a trial."""

    def __init__(self, runs: Path) -> None:
        super().__init__(daemon=True)
        self.runs, self.killed = runs, 0

    def run(self) -> None:
        until = time.monotonic() + 600
        while not self.killed and time.monotonic() < until:
            for lock in self.runs.glob("trials/*/*/run.lock"):
                metrics = lock.with_name("metrics.jsonl")
                if metrics.is_file() and metrics.stat().st_size and not lock.with_name("trial.json").exists():
                    pid = json.loads(lock.read_text())["pid"]
                    assert pid != os.getpid()
                    os.kill(pid, signal.SIGKILL)
                    self.killed = pid
                    return
            time.sleep(0.01)


@pytest.mark.slow
def test_four_trials_come_to_the_same_though_a_worker_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = carry_out(four(tmp_path / "plain"), 1, lambda line: None, Here)
    assert len({tuple(t.proxy) for t in plain.trials.values()}) == 4  # arms differ, or equality would be nothing

    runs, said = tmp_path / "ray", list[str]()
    killer = Killer(runs)
    killer.start()
    with cluster_at("", runs, 2, said.append) as cluster:
        found = carry_out(four(runs), cluster.workers, said.append, cluster.desk)
        # A machine that does not see the driver's directory works in its own and sends the files back.
        apart = replace(cluster, sign=Sign(tmp_path / "elsewhere", "0123456789abcdef"))
        job = replace(four(tmp_path / "back").job(next(iter(found.trials)), {}), references=None)
        returned = apart.desk().do(job)
    assert killer.killed
    assert capsys.readouterr().out == ""  # which is for results
    assert sum("its worker died (WorkerCrashedError); it is run again (2/4)" in line for line in said) == 1, said
    assert sum(line.startswith("[") for line in said) == 4
    assert len(found.trials) == 4
    assert measured(found) == measured(plain)
    assert files_of(runs) == files_of(tmp_path / "plain")
    assert returned.trial is not None, returned.failure
    first = next(iter(found.trials.values()))
    assert replace(returned.trial, **CLOCK) == replace(first, **CLOCK)
    # Everything that was started or put up is gone.
    assert not list(runs.glob(".shared-*"))
    assert not cluster_module.load_ray().is_initialized()
    tidy_up(json.dumps({"runs": str(tmp_path), "secret": "0123456789abcdef"}))
    assert not apart.sign.room.exists()


# --- without Ray: what the driver does with what it is told ------------------------------------------------------


class Crashed(Exception):
    """Stands in for Ray's errors about workers."""


class TaskFailed(Crashed):
    """Stands in for Ray's error about a task that raised."""


class StandInRay:
    """As much of Ray as a desk uses; `fate` is what becomes of each call."""

    exceptions = types.SimpleNamespace(RayError=Crashed, RayTaskError=TaskFailed)

    def __init__(self, *fates: object) -> None:
        self.fates, self.calls, self.cancelled = list(fates), 0, 0

    def remote(self, **options: object) -> Callable[[object], Any]:
        assert options == {"num_cpus": 1, "max_retries": 0}
        return lambda work: types.SimpleNamespace(remote=self._call)

    def _call(self, order: str) -> object:
        self.calls += 1
        return self.fates.pop(0)

    def wait(self, asked: list[object], timeout: float) -> tuple[list[object], list[object]]:
        if asked[0] != "hangs":
            return asked, []
        time.sleep(timeout)
        return [], asked

    def get(self, asked: object) -> object:
        if isinstance(asked, Exception):
            raise asked
        return asked

    def cancel(self, asked: object, force: bool) -> None:
        self.cancelled += 1


def desk_of(ray: StandInRay, tmp_path: Path, said: list[str]) -> RayDesk:
    return Cluster(ray, Sign(tmp_path, "secret"), 1, said.append).desk()


def job_in(tmp_path: Path) -> Job:
    return Job(["ppo.lr=0.1"], 3, tmp_path / "digest" / "seed-3", name="arm | seed 3", references=tmp_path / "refs")


def test_a_trial_is_given_up_after_some_tries_and_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    ray = StandInRay(*[Crashed()] * ATTEMPTS)
    outcome = desk_of(ray, tmp_path, said).do(job_in(tmp_path))
    assert outcome.failure == "its worker died (Crashed), 4 times; the same command goes on with it."
    assert ray.calls == ATTEMPTS
    assert len(said) == ATTEMPTS - 1


def test_what_a_worker_says_is_not_tried_again(tmp_path: Path) -> None:
    record = json.dumps({"shared": True, "host": "one", "failure": "The world is closed."})
    ray = StandInRay(
        (record, b""), TaskFailed("Traceback\n  somewhere\nModuleNotFoundError: No module named 'holdfast'")
    )
    desk = desk_of(ray, tmp_path, [])
    assert desk.do(job_in(tmp_path)).failure == "The world is closed."
    failure = desk.do(job_in(tmp_path)).failure
    assert failure == "The worker could not begin: ModuleNotFoundError: No module named 'holdfast'."
    assert ray.calls == 2


def test_a_desk_that_is_closed_ends_its_trial_and_begins_none(tmp_path: Path) -> None:
    ray, said = StandInRay("hangs", "hangs"), list[str]()
    desk = desk_of(ray, tmp_path, said)
    threading.Timer(0.2, desk.close).start()
    assert desk.do(job_in(tmp_path)).failure == "stopped; the same command goes on with it."
    assert (ray.calls, ray.cancelled, said) == (1, 1, [])
    assert desk.do(job_in(tmp_path)).trial is None
    assert ray.calls == 1


def test_a_trial_that_cannot_be_seen_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "VISIBLE_SECONDS", 0.3)
    ray = StandInRay((json.dumps({"shared": True, "host": "one", "failure": ""}), b""))
    outcome = desk_of(ray, tmp_path, []).do(job_in(tmp_path))
    assert outcome.trial is None
    assert outcome.failure.startswith("one says it has ended, but it is not to be seen in ")


# --- what a worker does -------------------------------------------------------------------------------------------


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The jobs that were done, each leaving a file."""
    jobs: list[Job] = []

    def run(job: Job) -> Trial:
        jobs.append(job)
        job.path.mkdir(parents=True, exist_ok=True)
        (job.path / "trial.json").write_text(str(job.seed))
        (job.path / "run.lock").write_text("locked")
        return trial([0.0, 0.5])

    monkeypatch.setattr(worker_module, "run_trial", run)
    return jobs


def test_a_worker_that_sees_the_directory_works_there(tmp_path: Path, done: list[Job]) -> None:
    sign = Sign(tmp_path, "a-secret")
    sign.put_up()
    record, files = work_on(order_of(job_in(tmp_path), sign))
    assert (json.loads(record)["shared"], files) == (True, b"")
    assert done == [job_in(tmp_path)]


def test_a_directory_of_the_same_name_is_not_the_same_directory(tmp_path: Path, done: list[Job]) -> None:
    sign = Sign(tmp_path, "a-secret")
    sign.file.write_text("another")
    record, files = work_on(order_of(job_in(tmp_path), sign))
    assert json.loads(record)["shared"] is False
    assert done[0].path == sign.room / "trials" / "digest" / "seed-3"
    assert done[0].references == sign.room / "references"
    assert not done[0].path.exists()
    # A cut trial of before gives way; the lock is not sent.
    job_in(tmp_path).path.mkdir(parents=True)
    (job_in(tmp_path).path / "old").touch()
    unpack(files, job_in(tmp_path).path)
    assert [p.name for p in job_in(tmp_path).path.iterdir()] == ["trial.json"]
    tidy_up(json.dumps({"runs": str(tmp_path), "secret": "a-secret"}))
    assert not sign.room.exists()


def test_a_failure_comes_back_as_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(job: Job) -> Trial:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(worker_module, "run_trial", fail)
    record, files = work_on(order_of(job_in(tmp_path), Sign(tmp_path, "a-secret")))
    assert json.loads(record)["failure"] == "ZeroDivisionError: division by zero."
    assert files == b""


@pytest.mark.parametrize("name", ["../escaped", "/escaped", "a/../../escaped"])
def test_a_file_that_would_lie_outside_is_refused(tmp_path: Path, name: str) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, "x")
    with pytest.raises(HoldfastError, match="would lie outside its trial"):
        unpack(buffer.getvalue(), tmp_path / "trial")
    assert not (tmp_path / "trial").exists()


def test_files_go_and_come_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "one" / "deep").mkdir(parents=True)
    (tmp_path / "one" / "deep" / "bytes").write_bytes(bytes(range(256)))
    unpack(packed(tmp_path / "one"), tmp_path / "two")
    assert (tmp_path / "two" / "deep" / "bytes").read_bytes() == bytes(range(256))


# --- the command --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("somewhere", "--ray somewhere is neither auto nor HOST:PORT; `ray status` shows a cluster's address."),
        ("ray://host:10001", "--ray ray://host:10001 is neither auto nor HOST:PORT"),
        ("127.0.0.1:1", "There is no Ray cluster at 127.0.0.1:1 ("),
    ],
)
def test_an_address_with_no_cluster_gets_a_sentence_and_writes_nothing(
    address: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["lab", "sweep", "beta", "--quick", "--ray", address]) == 2
    assert f"holdfast: {sentence}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_ray_there_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["lab", "sweep", "beta", "--quick", "--ray"]) == 2
    told = capsys.readouterr().err
    assert told.endswith("holdfast: --ray needs Ray, which is not installed: `pip install 'holdfast-rl[ray]'`.\n")
    assert list(tmp_path.iterdir()) == []


def test_joining_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**options: object) -> None:
        raise ConnectionError("Could not find any running Ray instance.\nMore words.")

    with pytest.raises(HoldfastError, match=r"cannot be joined: Could not find any running Ray instance\.$"):
        connect(types.SimpleNamespace(init=refuse, exceptions=StandInRay.exceptions), "auto")


def test_the_line_says_where_trials_are_worked_on() -> None:
    runs = Path("runs")
    assert how_they_see({"a": True, "b": True}, runs) == "all of them see runs, and work on trials there"
    assert how_they_see({"a": True, "b": False}, runs).startswith(
        "b cannot see runs: trials are worked on in their own"
    )
    assert how_they_see({"a": False}, runs).startswith("none of them sees runs: ")


@pytest.mark.parametrize("given", [["--ray"], ["--ray", "10.0.0.7:6379"], []])
def test_the_kept_command_does_not_name_machines(given: list[str]) -> None:
    assert command_of(["lab", "sweep", "beta", *given, "--seeds", "2"]) == "holdfast lab sweep beta --seeds 2"
